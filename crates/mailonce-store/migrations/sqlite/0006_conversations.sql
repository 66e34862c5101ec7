-- Conversations. `thread` is a whole id, as messages have it; ids rise with time, so rows are added at the end.

CREATE TABLE threads (
    thread BLOB NOT NULL PRIMARY KEY,
    team INTEGER NOT NULL,
    inbox INTEGER NOT NULL,
    rev INTEGER NOT NULL,
    latest_at INTEGER NOT NULL,     -- when something was last added to it
    about TEXT NOT NULL             -- JSON: lease and counts too
) STRICT, WITHOUT ROWID;
CREATE INDEX threads_latest ON threads (team, latest_at, thread);
CREATE INDEX threads_inbox ON threads (inbox, latest_at, thread);

CREATE TABLE thread_emails (
    thread BLOB NOT NULL,
    email BLOB NOT NULL,            -- whole, because the email may be long gone
    PRIMARY KEY (thread, email)
) STRICT, WITHOUT ROWID;

-- When a team answered a person, for as long as a cap may ask.
CREATE TABLE tallies (
    team INTEGER NOT NULL,
    person BLOB NOT NULL,           -- a hash
    latest_at INTEGER NOT NULL,
    times TEXT NOT NULL,            -- JSON
    PRIMARY KEY (team, person)
) STRICT, WITHOUT ROWID;
CREATE INDEX tallies_age ON tallies (latest_at);

-- What was said of late between the same people, in order.
CREATE TABLE likenesses (
    number INTEGER PRIMARY KEY,
    team INTEGER NOT NULL,
    pair BLOB NOT NULL,             -- a hash of sender and recipients
    at INTEGER NOT NULL,
    email INTEGER NOT NULL,
    marks BLOB NOT NULL,
    words BLOB NOT NULL             -- short hashes, four bytes each
) STRICT;
CREATE INDEX likenesses_pair ON likenesses (team, pair, number);

-- Rows leave this index when they are answered or skipped, so it stays small.
CREATE INDEX messages_unanswered ON messages (inbox, seq) WHERE state = 'unanswered';

-- Threads of the messages that are here already: who wrote what is in their heads.
WITH known AS (
    SELECT m.thread, m.team, m.inbox, m.seq, m.received_at, m.head, m.tail | (1 << 63) AS low, m.message AS high
    FROM messages m JOIN inboxes i ON i.inbox = m.inbox WHERE i.removed IS NULL
), firsts AS (
    -- A column beside the only MIN is that of the row with the least.
    SELECT thread, team, inbox, head ->> '$.subject' AS subject, received_at, MIN(seq) FROM known GROUP BY thread
), counts AS (
    SELECT thread, COUNT(*) AS messages, MAX(received_at) AS latest_at FROM known GROUP BY thread
), written AS (
    -- Ids are put together from their ordered and unordered bits, as mailonce-core id.rs does.
    SELECT thread, seq, format('%012x', high >> 12) AS millis, format('%03x', high & 4095) AS counter,
        format('%016x', low) AS low, ROW_NUMBER() OVER (PARTITION BY thread ORDER BY seq DESC) AS back
    FROM known WHERE head ->> '$.automatic' IS NULL AND head ->> '$.own' IS NULL
), people AS (
    SELECT thread, group_concat('[' || seq || ',"' || substr(millis, 1, 8) || '-' || substr(millis, 9) || '-7' || counter
        || '-' || substr(low, 1, 4) || '-' || substr(low, 5) || '"]', ',' ORDER BY seq) AS list
    FROM written WHERE back <= 50 GROUP BY thread
)
INSERT INTO threads (thread, team, inbox, rev, latest_at, about)
SELECT thread, team, inbox, messages, latest_at, json_object('subject', subject, 'created_at', received_at,
    'messages', messages, 'emails', 0, 'people', json('[' || COALESCE(list, '') || ']'), 'fence', 0, 'sends', json('[]'))
FROM firsts JOIN counts USING (thread) LEFT JOIN people USING (thread);
