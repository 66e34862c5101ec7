-- The install secret has a table of its own, so that replacing it leaves no copy in the page of a row that changes often.
-- Opening a ledger overwrites what this migration drops.

CREATE TABLE install_secret (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    plain BLOB,
    wrapped TEXT,                   -- encrypted under a key that isn't here
    CHECK ((plain IS NULL) <> (wrapped IS NULL))
) STRICT;
INSERT INTO install_secret (one, plain) SELECT one, secret FROM install;

CREATE TABLE installation (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch INTEGER NOT NULL,
    last_id INTEGER NOT NULL, -- no id may be handed out again, even after every trace of its email is gone
    seen_at INTEGER           -- the latest time that a process said it lived
) STRICT;
INSERT INTO installation SELECT one, epoch, last_id, seen_at FROM install;
DROP TABLE install;
ALTER TABLE installation RENAME TO install;
