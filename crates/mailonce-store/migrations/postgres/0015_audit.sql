-- The audit log: one chain of entries per team, and its ends. The start is the last entry that retention removed.
-- Appending locks the row of the chain, so entries of a team are numbered one after the other. Sends append nothing.
CREATE TABLE audit_chains (
    team       uuid   PRIMARY KEY,
    start_seq  bigint NOT NULL DEFAULT 0,
    start_hash bytea  NOT NULL DEFAULT '\x0000000000000000000000000000000000000000000000000000000000000000',
    seq        bigint NOT NULL DEFAULT 0,       -- the latest entry
    hash       bytea  NOT NULL DEFAULT '\x0000000000000000000000000000000000000000000000000000000000000000'
);

CREATE TABLE audit_entries (
    team  uuid   NOT NULL,
    seq   bigint NOT NULL,
    entry bytea  NOT NULL,                      -- the encoded fields, including the hash of the entry before
    hash  bytea  NOT NULL,                      -- SHA-256 of `entry`
    PRIMARY KEY (team, seq)
);

-- The names of ids in entries: people, addresses, IP addresses. Erasing a row leaves the chain valid.
CREATE TABLE audit_names (
    team uuid NOT NULL,
    id   text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    PRIMARY KEY (team, id)
);
CREATE INDEX audit_names_name ON audit_names (team, name);
