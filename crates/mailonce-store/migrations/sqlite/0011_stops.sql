-- Stops: switches that keep email from leaving. A due handoff that a stop covers is parked: it stays queued or
-- scheduled, and is no longer in the index of due handoffs, so that a long stop costs nothing.
CREATE TABLE stops (
    id BLOB PRIMARY KEY,
    team INTEGER,                   -- NULL for the installation and for transports
    scope TEXT NOT NULL UNIQUE,     -- the name of the scope
    stop TEXT NOT NULL              -- JSON
) STRICT, WITHOUT ROWID;
CREATE INDEX stops_team ON stops (team);

ALTER TABLE handoffs ADD COLUMN parked_by BLOB;  -- the stop
DROP INDEX handoffs_due;
CREATE INDEX handoffs_due ON handoffs (transport, due_at) WHERE state IN ('queued', 'scheduled') AND parked_by IS NULL;
CREATE INDEX handoffs_parked ON handoffs (parked_by, due_at) WHERE parked_by IS NOT NULL;
