-- The hand-off: who holds a handoff, what happened to it, and what was frozen, tried and learnt.

ALTER TABLE handoffs
    ADD COLUMN holder uuid,     -- the process that leased it
    ADD COLUMN work   text;     -- JSON; NULL when nothing happened yet

-- What a process that ended left behind, and what is due to be looked at. Both are small.
CREATE INDEX handoffs_open ON handoffs (holder) WHERE state IN ('leased', 'sending');
CREATE INDEX handoffs_doubt ON handoffs (due_at) WHERE state = 'unknown';

ALTER TABLE attempts
    ADD COLUMN ended_at  bigint,
    ADD COLUMN remote_id text,  -- the next hop's own name for the mail
    ADD COLUMN about     text;  -- JSON; NULL for a capture
CREATE UNIQUE INDEX attempts_number ON attempts (team, email, handoff, number);
CREATE INDEX attempts_remote ON attempts (team, remote_id) WHERE remote_id IS NOT NULL;

-- Facts about what the next hop did. Append-only, in the order they were learnt.
CREATE TABLE evidence (
    team  uuid   NOT NULL,
    email uuid   NOT NULL,
    n     bigint GENERATED ALWAYS AS IDENTITY,
    once  text,                 -- a name under which it counts only once
    fact  text   NOT NULL,      -- JSON
    PRIMARY KEY (team, email, n)
);
CREATE UNIQUE INDEX evidence_once ON evidence (team, email, once) WHERE once IS NOT NULL;

-- The bytes that every attempt by a transport sends, frozen with its first marker.
CREATE TABLE wires (
    team      uuid  NOT NULL,
    email     uuid  NOT NULL,
    transport text  NOT NULL,
    bytes     bytea NOT NULL,
    PRIMARY KEY (team, email, transport)
);
ALTER TABLE wires ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Processes that work, and when each was last heard of by the clock of this database.
CREATE TABLE nodes (
    id      uuid        PRIMARY KEY,
    seen_at timestamptz NOT NULL
);

-- The latest time that a process said it lived: time never goes back behind it.
ALTER TABLE install ADD COLUMN seen_at bigint;
