-- Conversations: threads and what is in them, whose turn a message is, and what guards remember.

-- A thread's row is the lock of its messages: whoever changes one of them holds this.
CREATE TABLE threads (
    team         uuid    NOT NULL,
    id           uuid    NOT NULL,
    inbox        uuid    NOT NULL,
    rev          integer NOT NULL,
    latest_at    bigint  NOT NULL,
    leased_until bigint,            -- out of what follows, to pass over threads that somebody works on
    about        text    NOT NULL,  -- JSON
    PRIMARY KEY (team, id)
) WITH (fillfactor = 70);           -- room for leases on the same page
CREATE INDEX threads_latest ON threads (team, latest_at, id);
CREATE INDEX threads_inbox ON threads (team, inbox, latest_at, id);

CREATE TABLE thread_emails (
    team   uuid NOT NULL,
    thread uuid NOT NULL,
    email  uuid NOT NULL,
    PRIMARY KEY (team, thread, email)
);

-- Out of a message's marks: not to be offered before.
ALTER TABLE messages ADD COLUMN not_before bigint;
CREATE INDEX messages_unanswered ON messages (team, inbox, seq) WHERE state = 'unanswered';

-- How often a person was answered of late. A row may be made only to be locked; it goes with the next sweep.
CREATE TABLE tallies (
    team       uuid   NOT NULL,
    person     uuid   NOT NULL,
    kept_until bigint NOT NULL DEFAULT 0,
    times      text   NOT NULL DEFAULT '[]',    -- JSON
    PRIMARY KEY (team, person)
);
CREATE INDEX tallies_kept ON tallies (kept_until);

-- What was said between the same people of late, oldest first. The rows live like those of tallies.
CREATE TABLE likenesses (
    team       uuid   NOT NULL,
    pair       uuid   NOT NULL,
    kept_until bigint NOT NULL DEFAULT 0,
    latest     text   NOT NULL DEFAULT '[]',    -- JSON
    PRIMARY KEY (team, pair)
);
CREATE INDEX likenesses_kept ON likenesses (kept_until);

-- What people must look at.
CREATE INDEX handoffs_stuck ON handoffs (team, email) WHERE state IN ('held', 'unknown');

-- Threads of messages that are there already. Mail may hold a zero character, which no value here can: it is replaced
-- before a head is read, and stays as it is in the message itself.
WITH heads AS MATERIALIZED (
    SELECT team, thread, inbox, seq, id, received_at, replace(head, '\u0000', '\ufffd')::json AS head FROM messages
), begun AS (
    SELECT DISTINCT ON (team, thread) team, thread, inbox, head -> 'subject' AS subject
      FROM heads ORDER BY team, thread, seq
), counted AS (
    SELECT team, thread, count(*) AS messages, min(received_at) AS created_at, max(received_at) AS latest_at
      FROM heads GROUP BY team, thread
), people AS (
    SELECT team, thread, json_agg(json_build_array(seq, id) ORDER BY seq) AS people
      FROM (SELECT team, thread, seq, id, row_number() OVER (PARTITION BY team, thread ORDER BY seq DESC) AS place
              FROM heads WHERE head -> 'automatic' IS NULL AND head -> 'own' IS NULL) written
     WHERE place <= 50 GROUP BY team, thread
)
INSERT INTO threads (team, id, inbox, rev, latest_at, about)
SELECT b.team, b.thread, b.inbox, c.messages, c.latest_at,
       json_build_object('subject', coalesce(b.subject, '""'), 'created_at', c.created_at, 'messages', c.messages,
                         'emails', 0, 'people', coalesce(p.people, '[]'), 'fence', 0)::text
  FROM begun b JOIN counted c USING (team, thread) LEFT JOIN people p USING (team, thread);
