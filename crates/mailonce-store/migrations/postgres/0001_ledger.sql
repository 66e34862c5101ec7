-- The ledger. Times are milliseconds since the epoch; states, kinds and guards are the words of the glossary.
-- Every row carries its team, and every index begins with it unless it is a queue that all teams share.

CREATE TABLE install (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    secret  bytea   NOT NULL CHECK (octet_length(secret) = 32),
    epoch   integer NOT NULL DEFAULT 1,
    -- The highest id among the emails whose last trace is gone.
    last_id bigint  NOT NULL DEFAULT 0,
    -- Rises with each check of health, because only a commit shows that commits work.
    checked bigint  NOT NULL DEFAULT 0
);

CREATE TABLE teams (
    id           uuid    PRIMARY KEY,
    name         text    NOT NULL,
    created_at   bigint  NOT NULL,
    require_keys boolean NOT NULL
);

CREATE TABLE api_keys (
    id           uuid   PRIMARY KEY,
    team         uuid   NOT NULL,
    hash         bytea  NOT NULL,
    about        text   NOT NULL,
    created_at   bigint NOT NULL,
    revoked_at   bigint,
    last_used_at bigint
);
CREATE INDEX api_keys_hash ON api_keys (hash);
CREATE INDEX api_keys_team ON api_keys (team, id);

-- One row per key, and one per recipient of an intent with several. A row with bind 0 was never bound: it is a slot.
-- The 128-bit hash is kept as a uuid: sixteen bytes, compared as bytes.
CREATE TABLE keys (
    team         uuid    NOT NULL,
    hash         uuid    NOT NULL,
    bind         integer NOT NULL DEFAULT 0,
    -- What it is bound to: an email,
    email        uuid,
    -- or an operation.
    digest       bytea,
    answer       bytea,
    expires_at   bigint,
    -- The email of several recipients that stands for this one.
    slot         uuid,
    forgotten_at bigint,
    PRIMARY KEY (team, hash)
);
CREATE INDEX keys_expires ON keys (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE emails (
    team       uuid    NOT NULL,
    id         uuid    NOT NULL,
    rev        integer NOT NULL,
    bind       integer NOT NULL,
    ttl        bigint  NOT NULL,
    settled_at bigint,
    sweep_at   bigint,
    resent_as  uuid,
    guard      text,
    digest     bytea   NOT NULL,
    -- JSON as text: it is never looked into here, so it need not be parsed.
    head       text    NOT NULL,
    -- The packed content, until it is dropped. A large one lies apart and is not written again with the row.
    body       bytea,
    -- Also the order of listings, so that an accept pays for one tree instead of two.
    PRIMARY KEY (team, id)
);
CREATE INDEX emails_sweep ON emails (sweep_at, team, id) WHERE sweep_at IS NOT NULL;

-- Bodies arrive packed; to pack them again costs time and gains nothing.
ALTER TABLE emails ALTER COLUMN body SET STORAGE EXTERNAL;

-- An email's row is the lock of its handoffs.
CREATE TABLE handoffs (
    team       uuid     NOT NULL,
    email      uuid     NOT NULL,
    number     integer  NOT NULL,
    attempts   integer  NOT NULL,
    fence      bigint   NOT NULL,
    due_at     bigint,
    state      text     NOT NULL,
    transport  text     NOT NULL,
    recipients text     NOT NULL,
    PRIMARY KEY (team, email, number)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX handoffs_due ON handoffs (transport, due_at, email, number)
    WHERE state IN ('queued', 'scheduled') AND due_at IS NOT NULL;

CREATE TABLE attempts (
    team    uuid    NOT NULL,
    email   uuid    NOT NULL,
    -- The order in which they were written.
    n       bigint  GENERATED ALWAYS AS IDENTITY,
    handoff integer NOT NULL,
    number  integer NOT NULL,
    at      bigint  NOT NULL,
    outcome text,
    reply   text    NOT NULL,
    PRIMARY KEY (team, email, n)
);

-- Calls that were answered with an earlier email.
CREATE TABLE suppressed (
    team   uuid   NOT NULL,
    email  uuid   NOT NULL,
    count  bigint NOT NULL,
    latest text   NOT NULL,
    PRIMARY KEY (team, email)
);

-- Events travel in blocks: one row holds all that a statement left for a team, in order, so that an accept among many
-- pays for no row of its own. Verbs leave them here; the sequencer moves them on and gives them their numbers.
CREATE TABLE events_pending (
    team  uuid      NOT NULL,
    n     bigint    GENERATED ALWAYS AS IDENTITY,
    at    bigint[]  NOT NULL,
    about uuid[]    NOT NULL,
    rev   integer[] NOT NULL,
    kind  text[]    NOT NULL,
    data  text[]    NOT NULL,
    PRIMARY KEY (team, n)
);

CREATE TABLE event_counters (
    team uuid   PRIMARY KEY,
    seq  bigint NOT NULL
);

-- A block is named by the number of its last event.
CREATE TABLE events (
    team  uuid      NOT NULL,
    seq   bigint    NOT NULL,
    at    bigint[]  NOT NULL,
    about uuid[]    NOT NULL,
    rev   integer[] NOT NULL,
    kind  text[]    NOT NULL,
    data  text[]    NOT NULL,
    PRIMARY KEY (team, seq)
);

-- Blocks are moved once and read seldom: to pack them would cost more than it saves.
ALTER TABLE events_pending
    ALTER COLUMN at SET STORAGE EXTERNAL, ALTER COLUMN about SET STORAGE EXTERNAL, ALTER COLUMN rev SET STORAGE EXTERNAL,
    ALTER COLUMN kind SET STORAGE EXTERNAL, ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE events
    ALTER COLUMN at SET STORAGE EXTERNAL, ALTER COLUMN about SET STORAGE EXTERNAL, ALTER COLUMN rev SET STORAGE EXTERNAL,
    ALTER COLUMN kind SET STORAGE EXTERNAL, ALTER COLUMN data SET STORAGE EXTERNAL;
