-- The audit log: one chain of entries per team, and its ends. The start is the last entry that retention removed.
CREATE TABLE audit_chains (
    team BLOB PRIMARY KEY,          -- the id of the team
    start_seq INTEGER NOT NULL,
    start_hash BLOB NOT NULL,
    seq INTEGER NOT NULL,           -- the latest entry
    hash BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_entries (
    team BLOB NOT NULL,
    seq INTEGER NOT NULL,
    entry BLOB NOT NULL,            -- the encoded fields, including the hash of the entry before
    hash BLOB NOT NULL,             -- SHA-256 of `entry`
    PRIMARY KEY (team, seq)
) STRICT, WITHOUT ROWID;

-- The names of ids in entries: people, addresses, IP addresses. Erasing a row leaves the chain valid.
CREATE TABLE audit_names (
    team BLOB NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (team, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_names_name ON audit_names (team, name);
