-- Telling others: endpoints, and what is owed to them.

CREATE TABLE endpoints (
    team          uuid    NOT NULL,
    id            uuid    NOT NULL,
    rev           integer NOT NULL,
    created_at    bigint  NOT NULL,
    since         bigint  NOT NULL,
    cursor        bigint  NOT NULL, -- the last event that was looked at for it
    redo_until    bigint  NOT NULL, -- events up to this one are owed again
    failing_since bigint,
    spread_at     bigint,           -- when events were last looked at for it
    removed       boolean NOT NULL DEFAULT false,   -- while something of it is left
    state         text    NOT NULL,
    reason        text,
    about         text    NOT NULL, -- JSON
    PRIMARY KEY (team, id)
) WITH (fillfactor = 50);           -- room for the next cursor on the same page

-- One event owed to one endpoint. Of the open ones about a subject only the first has a time.
CREATE TABLE notices (
    team       uuid    NOT NULL,
    endpoint   uuid    NOT NULL,
    seq        bigint  NOT NULL,    -- the number of the event
    id         uuid    NOT NULL,
    about      uuid    NOT NULL,
    rev        integer NOT NULL,
    attempts   integer NOT NULL,
    failures   integer NOT NULL,
    waited_ms  bigint  NOT NULL,
    next_at    bigint,
    holder     uuid,                -- the process that is at it
    owed_at    bigint  NOT NULL,
    settled_at bigint,
    sweep_at   bigint,
    kind       text    NOT NULL,
    state      text    NOT NULL,
    log        text,                -- JSON; NULL while no attempt ended
    PRIMARY KEY (endpoint, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE UNIQUE INDEX notices_id ON notices (id);
-- Rows leave these indexes when they are settled, so they stay small.
CREATE INDEX notices_due ON notices (endpoint, next_at, seq) WHERE next_at IS NOT NULL;
CREATE INDEX notices_timed ON notices (endpoint, about, seq) WHERE next_at IS NOT NULL;
CREATE INDEX notices_open ON notices (endpoint, about, seq) WHERE state = 'pending';
CREATE INDEX notices_held ON notices (endpoint, seq) WHERE holder IS NOT NULL;
CREATE INDEX notices_dead ON notices (endpoint, seq) WHERE state = 'dead';
CREATE INDEX notices_sweep ON notices (sweep_at, endpoint, seq) WHERE sweep_at IS NOT NULL;
