-- Telling others. `endpoint` is the ordered bits of an id, as `email` is.

CREATE TABLE endpoints (
    endpoint INTEGER PRIMARY KEY,
    tail INTEGER NOT NULL,
    team INTEGER NOT NULL,
    rev INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    since INTEGER NOT NULL,
    cursor INTEGER NOT NULL,        -- the last event that was looked at for it
    redo_until INTEGER NOT NULL,    -- events up to this one are owed again
    failing_since INTEGER,
    spread_at INTEGER,              -- when events were last looked at for it
    removed INTEGER,                -- NULL while it is there, 1 while something of it is left
    about TEXT NOT NULL             -- JSON
) STRICT;
CREATE INDEX endpoints_age ON endpoints (team, endpoint) WHERE removed IS NULL;
CREATE INDEX endpoints_left ON endpoints (endpoint) WHERE removed = 1;

-- One event owed to one endpoint. Of the open ones about a subject only the first has a time.
CREATE TABLE notices (
    endpoint INTEGER NOT NULL,
    seq INTEGER NOT NULL,           -- the number of the event
    team INTEGER NOT NULL,
    id BLOB NOT NULL,
    kind TEXT NOT NULL,
    about BLOB NOT NULL,
    rev INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    waited_ms INTEGER NOT NULL,
    next_at INTEGER,
    holder BLOB,                    -- the process that is at it
    owed_at INTEGER NOT NULL,
    settled_at INTEGER,
    sweep_at INTEGER,
    log TEXT,                       -- JSON; NULL while no attempt ended
    PRIMARY KEY (endpoint, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX notices_id ON notices (id);
-- Rows leave these indexes when they are settled, so they stay small.
CREATE INDEX notices_due ON notices (endpoint, next_at, seq) WHERE next_at IS NOT NULL;
CREATE INDEX notices_timed ON notices (endpoint, about, seq) WHERE next_at IS NOT NULL;
CREATE INDEX notices_open ON notices (endpoint, about, seq) WHERE state = 'pending';
CREATE INDEX notices_held ON notices (endpoint, seq) WHERE holder IS NOT NULL;
CREATE INDEX notices_dead ON notices (endpoint, seq) WHERE state = 'dead';
CREATE INDEX notices_sweep ON notices (sweep_at, endpoint, seq) WHERE sweep_at IS NOT NULL;
