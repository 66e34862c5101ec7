-- Claims: the once-only right to a side effect.
CREATE TABLE claims (
    id BLOB PRIMARY KEY NOT NULL,
    team INTEGER NOT NULL,
    key BLOB NOT NULL,      -- the hash of the key
    state TEXT NOT NULL,
    due_at INTEGER,         -- when its lease or its policy's pause ends
    forget_at INTEGER,
    claim TEXT NOT NULL,    -- JSON
    result BLOB,            -- last, so that lists do not read it
    UNIQUE (team, key)
) STRICT;
CREATE INDEX claims_team ON claims (team, id);
CREATE INDEX claims_due ON claims (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX claims_forget ON claims (forget_at) WHERE forget_at IS NOT NULL;
CREATE INDEX claims_unknown ON claims (id) WHERE state = 'unknown';

-- How often the key of a forgotten claim was bound.
CREATE TABLE claim_tombstones (
    team INTEGER NOT NULL,
    key BLOB NOT NULL,
    binds INTEGER NOT NULL,
    forgotten_at INTEGER NOT NULL,
    PRIMARY KEY (team, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX claim_tombstones_age ON claim_tombstones (forgotten_at);
