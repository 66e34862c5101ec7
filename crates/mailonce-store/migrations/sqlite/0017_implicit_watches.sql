-- The watch that each consumer has at an inbox from its first call on.
CREATE TABLE implicit_watches (
    team INTEGER NOT NULL,
    inbox INTEGER NOT NULL,
    consumer BLOB NOT NULL,   -- a keyed hash of its name
    after_seq INTEGER NOT NULL,
    ends_at INTEGER NOT NULL,
    PRIMARY KEY (team, inbox, consumer)
) STRICT, WITHOUT ROWID;
CREATE INDEX implicit_watches_end ON implicit_watches (ends_at);
