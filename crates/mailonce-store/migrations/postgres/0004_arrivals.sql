-- Mail that comes in: inboxes and their addresses, deliveries with their bytes, messages and what was found in them.

CREATE TABLE inboxes (
    team       uuid    NOT NULL,
    id         uuid    NOT NULL,
    rev        integer NOT NULL,
    -- The number of its latest message. Whoever holds this row gives out the next one.
    seq        bigint  NOT NULL,
    created_at bigint  NOT NULL,
    -- From then on it is not there. The row stays, as its addresses do.
    removed_at bigint,
    -- While there may be something left of a removed inbox: whose turn it is to be swept.
    sweep_at   bigint,
    address    text    COLLATE "C" NOT NULL,
    client_id  text    COLLATE "C",
    about      text    NOT NULL,    -- JSON
    PRIMARY KEY (team, id)
) WITH (fillfactor = 50);           -- room for the next number on the same page
CREATE UNIQUE INDEX inboxes_client ON inboxes (team, client_id) WHERE client_id IS NOT NULL AND removed_at IS NULL;
CREATE INDEX inboxes_sweep ON inboxes (sweep_at) WHERE sweep_at IS NOT NULL;

-- Every address that an inbox has or had, and the catch-alls that some have. A row outlives its inbox.
CREATE TABLE addresses (
    name    text    COLLATE "C" PRIMARY KEY,
    team    uuid    NOT NULL,
    inbox   uuid    NOT NULL,
    retired boolean NOT NULL DEFAULT false
);

CREATE TABLE deliveries (
    team        uuid    NOT NULL,
    id          uuid    NOT NULL,
    rev         integer NOT NULL,
    attempts    integer NOT NULL,
    received_at bigint  NOT NULL,
    due         bigint,             -- while it waits
    holder      uuid,               -- the process that reads it
    inbox       uuid,
    source      uuid,
    raw         uuid,               -- its bytes; NULL when none are kept for it
    message     uuid,
    repeats     uuid,               -- the delivery that came first
    state       text    NOT NULL,
    suppressed  text,
    about       text    NOT NULL,   -- JSON
    target      text,               -- JSON; NULL for an inbox
    trouble     text,               -- JSON, because mail may hold what text may not
    PRIMARY KEY (team, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX deliveries_due ON deliveries (due, id) WHERE state = 'waiting';
CREATE INDEX deliveries_inbox ON deliveries (team, inbox, id) WHERE inbox IS NOT NULL;
CREATE INDEX deliveries_suppressed ON deliveries (received_at, id) WHERE state IN ('duplicate', 'refused');

-- Which delivery came first under a key, and until when the same key is the same delivery.
CREATE TABLE delivery_keys (
    team        uuid   NOT NULL,
    key         bytea  NOT NULL,
    delivery    uuid   NOT NULL,
    known_until bigint NOT NULL,
    PRIMARY KEY (team, key)
);
CREATE INDEX delivery_keys_until ON delivery_keys (known_until);

-- The bytes of an arrival, packed, once for all who share them. They may be of several teams, so the row has none:
-- it is only ever reached through a delivery.
CREATE TABLE raws (
    id    uuid    PRIMARY KEY,
    users integer NOT NULL,         -- deliveries that need them
    bytes bytea   NOT NULL
);
ALTER TABLE raws ALTER COLUMN bytes SET STORAGE EXTERNAL;

CREATE TABLE messages (
    team        uuid    NOT NULL,
    inbox       uuid    NOT NULL,
    seq         bigint  NOT NULL,
    id          uuid    NOT NULL,
    rev         integer NOT NULL,
    thread      uuid    NOT NULL,
    delivery    uuid    NOT NULL,
    received_at bigint  NOT NULL,
    state       text    NOT NULL,
    name        bytea,              -- the hash of its Message-ID
    content     bytea   NOT NULL,   -- the hash of what it says
    head        text    NOT NULL,   -- JSON
    marks       text    NOT NULL,   -- JSON
    PRIMARY KEY (team, inbox, seq)
);
CREATE UNIQUE INDEX messages_id ON messages (team, id);
-- What an inbox has under a Message-ID, or without one under a content.
CREATE INDEX messages_known ON messages (team, inbox, coalesce(name, content), content);

-- The thread that a Message-ID belongs to in an inbox. First come, first kept.
CREATE TABLE thread_names (
    team   uuid  NOT NULL,
    inbox  uuid  NOT NULL,
    name   bytea NOT NULL,
    thread uuid  NOT NULL,
    PRIMARY KEY (team, inbox, name)
);

CREATE TABLE artifacts (
    team          uuid    NOT NULL,
    id            uuid    NOT NULL,
    inbox         uuid    NOT NULL,
    message       uuid    NOT NULL,
    seq           bigint  NOT NULL, -- of the latest message that holds it
    found_at      bigint  NOT NULL,
    applied_at    bigint,
    rev           integer NOT NULL,
    authenticated boolean NOT NULL,
    kind          text    NOT NULL,
    hash          bytea   NOT NULL, -- a keyed hash of the value
    sender        bytea   NOT NULL, -- in UTF-8; mail may hold what text may not
    found         text    NOT NULL, -- JSON
    consumed      text,             -- JSON
    PRIMARY KEY (team, id)
);
CREATE INDEX artifacts_latest ON artifacts (team, inbox, seq);
CREATE INDEX artifacts_same ON artifacts (team, inbox, hash);

CREATE TABLE watches (
    team       uuid    NOT NULL,
    id         uuid    NOT NULL,
    inbox      uuid    NOT NULL,
    rev        integer NOT NULL,
    started_at bigint  NOT NULL,
    after      bigint  NOT NULL,
    deadline   bigint  NOT NULL,
    budget     integer NOT NULL,
    spent      integer NOT NULL,
    PRIMARY KEY (team, id)
);
CREATE INDEX watches_inbox ON watches (team, inbox);
