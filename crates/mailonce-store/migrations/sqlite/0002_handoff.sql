-- The hand-off: who holds a handoff, what happened to it, and what was frozen, tried and learnt.

ALTER TABLE handoffs ADD COLUMN holder BLOB;    -- the process that leased it
ALTER TABLE handoffs ADD COLUMN work TEXT;      -- JSON; NULL when nothing happened yet

-- What a process that ended left behind, and what is due to be looked at. Both are small.
CREATE INDEX handoffs_open ON handoffs (state) WHERE state IN ('leased', 'sending');
CREATE INDEX handoffs_doubt ON handoffs (due_at) WHERE state = 'unknown';

ALTER TABLE attempts ADD COLUMN ended_at INTEGER;
ALTER TABLE attempts ADD COLUMN remote_id TEXT; -- the next hop's own name for the mail
ALTER TABLE attempts ADD COLUMN about TEXT;     -- JSON; NULL for a capture
CREATE INDEX attempts_remote ON attempts (remote_id) WHERE remote_id IS NOT NULL;

-- Facts about what the next hop did. Append-only.
CREATE TABLE evidence (
    email INTEGER NOT NULL,
    number INTEGER NOT NULL,                    -- in the order they were learnt, from 1
    once TEXT,                                  -- a name under which it counts only once
    fact TEXT NOT NULL,                         -- JSON
    PRIMARY KEY (email, number)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX evidence_once ON evidence (email, once) WHERE once IS NOT NULL;

-- The bytes that every attempt by a transport sends, frozen with its first marker.
CREATE TABLE wires (
    email INTEGER NOT NULL,
    transport TEXT NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (email, transport)
) STRICT;

-- The latest time that a process said it lived: time never goes back behind it.
ALTER TABLE install ADD COLUMN seen_at INTEGER;
