-- The ledger. Times are milliseconds since the epoch. `team` is the team's number, `email` the ordered bits of an
-- email's id (see mailonce-core id.rs), so that no table needs an index on a random id.

CREATE TABLE install (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    secret BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    last_id INTEGER NOT NULL -- no id may be handed out again, even after every trace of its email is gone
) STRICT;

CREATE TABLE teams (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    require_keys INTEGER NOT NULL
) STRICT;

CREATE TABLE api_keys (
    id BLOB PRIMARY KEY,
    team INTEGER NOT NULL,
    hash BLOB NOT NULL UNIQUE,
    about TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER,
    last_used_at INTEGER
) STRICT, WITHOUT ROWID;

-- One row per key that is or was bound, or that stands for one recipient of an email to several.
CREATE TABLE keys (
    team INTEGER NOT NULL,
    hash BLOB NOT NULL,
    bind INTEGER NOT NULL,
    email INTEGER,          -- bound to this email
    slot INTEGER,           -- this email to several recipients stands for it
    forgotten_at INTEGER,
    digest BLOB,            -- bound to an operation that is not a send
    answer BLOB,
    expires_at INTEGER,     -- of the operation, then of its tombstone
    PRIMARY KEY (team, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_expiry ON keys (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE emails (
    email INTEGER PRIMARY KEY,
    team INTEGER NOT NULL,
    tail INTEGER NOT NULL,  -- the unordered bits of the id
    rev INTEGER NOT NULL,
    bind INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    settled_at INTEGER,
    guard TEXT,
    resent_as BLOB,
    sweep_at INTEGER,
    digest BLOB NOT NULL,
    head TEXT NOT NULL,     -- JSON, never changes
    body BLOB               -- when it is small; see bodies
) STRICT;
CREATE INDEX emails_sweep ON emails (sweep_at) WHERE sweep_at IS NOT NULL;

-- Bodies that are too large to be written again with every change of their email's row.
CREATE TABLE bodies (
    email INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

-- Sorted by team and email, so that it is also the way from a team to its emails.
CREATE TABLE handoffs (
    team INTEGER NOT NULL,
    email INTEGER NOT NULL,
    number INTEGER NOT NULL,
    transport TEXT NOT NULL,
    recipients TEXT NOT NULL, -- JSON
    state TEXT NOT NULL,
    due_at INTEGER,
    attempts INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    PRIMARY KEY (team, email, number)
) STRICT, WITHOUT ROWID;
-- Rows leave this index when they are handed off, so it stays small.
CREATE INDEX handoffs_due ON handoffs (due_at) WHERE state IN ('queued', 'scheduled');
-- States that are rare and looked for.
CREATE INDEX handoffs_rare ON handoffs (team, state, email)
    WHERE state IN ('held', 'unknown', 'failed', 'bounced', 'complained', 'abandoned', 'cancelled');

CREATE TABLE attempts (
    email INTEGER NOT NULL,
    handoff INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    outcome TEXT,
    reply TEXT NOT NULL,
    PRIMARY KEY (email, handoff, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE suppressed (
    email INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    latest TEXT NOT NULL    -- JSON, oldest first
) STRICT;

-- Events travel in blocks: one row per team and commit, named by the number of its last event.
CREATE TABLE event_blocks (
    team INTEGER NOT NULL,
    last INTEGER NOT NULL,
    events BLOB NOT NULL,
    PRIMARY KEY (team, last)
) STRICT, WITHOUT ROWID;
