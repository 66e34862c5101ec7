-- Stops: switches that keep email from leaving. A due handoff that a stop covers is parked: it stays queued or
-- scheduled, and is no longer in the index of due handoffs, so that a long stop costs nothing.
CREATE TABLE stops (
    id    uuid PRIMARY KEY,
    team  uuid,                                 -- NULL for the installation and for transports
    scope text COLLATE "C" NOT NULL UNIQUE,     -- the name of the scope
    stop  text NOT NULL                         -- JSON
);
CREATE INDEX stops_team ON stops (team);

ALTER TABLE handoffs ADD COLUMN parked_by uuid; -- the stop
DROP INDEX handoffs_due;
CREATE INDEX handoffs_due ON handoffs (transport, due_at, email, number)
    WHERE state IN ('queued', 'scheduled') AND due_at IS NOT NULL AND parked_by IS NULL;
CREATE INDEX handoffs_parked ON handoffs (parked_by, due_at, email, number) WHERE parked_by IS NOT NULL;
