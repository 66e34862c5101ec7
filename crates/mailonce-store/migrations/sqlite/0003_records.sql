-- Small things a team owns that are not mail: sending domains, suppressed addresses, sources of events.
CREATE TABLE records (
    id BLOB NOT NULL PRIMARY KEY,
    team INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    rev INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    about TEXT NOT NULL                         -- JSON, read by the engine alone
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX records_name ON records (team, kind, name);
CREATE INDEX records_age ON records (team, kind, id);
