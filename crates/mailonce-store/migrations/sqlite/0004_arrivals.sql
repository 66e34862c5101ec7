-- Mail that comes in. `inbox`, `delivery`, `message`, `artifact` and `watch` are the ordered bits of ids, as `email` is;
-- an id that is only referred to is whole, 16 bytes.

CREATE TABLE inboxes (
    inbox INTEGER PRIMARY KEY,
    tail INTEGER NOT NULL,
    team INTEGER NOT NULL,
    rev INTEGER NOT NULL,
    seq INTEGER NOT NULL,           -- the number of its latest message
    address TEXT NOT NULL,
    client_id TEXT,
    created_at INTEGER NOT NULL,
    about TEXT NOT NULL,            -- JSON
    removed INTEGER                 -- NULL while it is there; then 1 while something of it is left, and 0 at last
) STRICT;
CREATE UNIQUE INDEX inboxes_client ON inboxes (team, client_id) WHERE client_id IS NOT NULL AND removed IS NULL;
CREATE INDEX inboxes_age ON inboxes (team, inbox) WHERE removed IS NULL;
CREATE INDEX inboxes_left ON inboxes (inbox) WHERE removed = 1;

-- Every address and every domain's catch-all that was ever taken.
CREATE TABLE inbox_names (
    name TEXT NOT NULL PRIMARY KEY,
    inbox INTEGER NOT NULL,
    reaches INTEGER NOT NULL        -- 0 for an old address, which reaches nobody
) STRICT, WITHOUT ROWID;

-- Sorted by team and delivery, so that it is also the way from a team to its deliveries.
CREATE TABLE deliveries (
    team INTEGER NOT NULL,
    delivery INTEGER NOT NULL,
    tail INTEGER NOT NULL,
    rev INTEGER NOT NULL,
    state TEXT NOT NULL,
    due_at INTEGER,
    attempts INTEGER NOT NULL,
    holder BLOB,                    -- the process that reads it
    raw INTEGER,                    -- where its bytes are, while it needs them
    inbox BLOB,                     -- whom it is for: this inbox,
    back TEXT,                      -- or the return path of an email (JSON), or nobody
    received_at INTEGER NOT NULL,
    suppressed TEXT,
    repeats BLOB,                   -- the delivery that came first
    message BLOB,                   -- the message it made or repeated
    trouble TEXT,
    about TEXT NOT NULL,            -- JSON, never changes
    PRIMARY KEY (team, delivery)
) STRICT, WITHOUT ROWID;
-- Rows leave this index when they were read, so it stays small.
CREATE INDEX deliveries_due ON deliveries (due_at, delivery) WHERE state = 'waiting';
CREATE INDEX deliveries_suppressed ON deliveries (received_at) WHERE state IN ('duplicate', 'refused');
-- What a removed inbox leaves besides its messages.
CREATE INDEX deliveries_ended ON deliveries (inbox) WHERE state <> 'waiting' AND (state <> 'done' OR raw IS NULL);

-- Under which keys deliveries are known again, and until when.
CREATE TABLE delivery_keys (
    team INTEGER NOT NULL,
    hash BLOB NOT NULL,
    delivery BLOB NOT NULL,
    known_until INTEGER NOT NULL,
    PRIMARY KEY (team, hash)
) STRICT, WITHOUT ROWID;

-- The bytes of an arrival, packed, under the first delivery that was kept of it.
CREATE TABLE raws (
    raw INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;
-- How many deliveries need them, where they were more than one.
CREATE TABLE raw_uses (
    raw INTEGER PRIMARY KEY,
    uses INTEGER NOT NULL
) STRICT;

CREATE TABLE messages (
    message INTEGER PRIMARY KEY,
    tail INTEGER NOT NULL,
    team INTEGER NOT NULL,
    inbox INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    rev INTEGER NOT NULL,
    thread BLOB NOT NULL,
    delivery BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    marks TEXT NOT NULL,            -- JSON
    head TEXT NOT NULL              -- JSON, never changes
) STRICT;
CREATE UNIQUE INDEX messages_place ON messages (inbox, seq);

-- Message-IDs an inbox knows: the thread each belongs to, and the first message that bore it, once that came.
CREATE TABLE message_names (
    inbox INTEGER NOT NULL,
    name BLOB NOT NULL,
    thread BLOB,
    message BLOB,
    content BLOB,
    PRIMARY KEY (inbox, name)
) STRICT, WITHOUT ROWID;
-- Messages that the table above has no room for: without a Message-ID, or with one that was used before.
CREATE TABLE message_contents (
    inbox INTEGER NOT NULL,
    name BLOB NOT NULL,             -- empty without one
    content BLOB NOT NULL,
    message BLOB NOT NULL,
    PRIMARY KEY (inbox, name, content)
) STRICT, WITHOUT ROWID;

CREATE TABLE artifacts (
    artifact INTEGER PRIMARY KEY,
    tail INTEGER NOT NULL,
    team INTEGER NOT NULL,
    inbox INTEGER NOT NULL,
    message BLOB NOT NULL,
    rev INTEGER NOT NULL,
    kind TEXT NOT NULL,
    hash BLOB NOT NULL,
    found TEXT NOT NULL,            -- JSON
    sender TEXT NOT NULL,
    found_at INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    authenticated INTEGER NOT NULL,
    consumed TEXT,                  -- JSON
    applied_at INTEGER
) STRICT;
CREATE INDEX artifacts_place ON artifacts (inbox, seq DESC, artifact);
CREATE INDEX artifacts_value ON artifacts (inbox, hash);

CREATE TABLE watches (
    watch INTEGER PRIMARY KEY,
    tail INTEGER NOT NULL,
    team INTEGER NOT NULL,
    inbox INTEGER NOT NULL,
    rev INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    behind INTEGER NOT NULL,        -- only messages after this number count
    deadline INTEGER NOT NULL,
    budget INTEGER NOT NULL,
    spent INTEGER NOT NULL
) STRICT;
CREATE INDEX watches_inbox ON watches (inbox);
