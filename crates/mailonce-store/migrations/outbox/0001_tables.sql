-- The tables of an outbox, in the user's own database. "{schema}" is replaced by the name of the schema.

-- One row: which outbox this is, and the server on which an operator confirmed it.
CREATE TABLE "{schema}".install (
    only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    outbox_id         uuid NOT NULL DEFAULT gen_random_uuid(),
    schema_version    integer NOT NULL,
    server_identity   text NOT NULL,
    confirmed_at      timestamptz NOT NULL DEFAULT now(),
    installed_at      timestamptz NOT NULL DEFAULT now()
);

-- One row per email. The application inserts with send() and may read; only a drainer changes a row.
CREATE TABLE "{schema}".rows (
    seq            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id             uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    payload        jsonb NOT NULL,
    payload_bytes  integer NOT NULL,
    key            text,
    order_key      text,
    created_at     timestamptz NOT NULL DEFAULT now(),
    state          text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'done', 'parked')),
    -- A row becomes too old by this time, not by created_at: a replay starts it again.
    offered_at     timestamptz NOT NULL DEFAULT now(),
    -- Nobody leases the row before this time: the end of its lease, or of the pause after a failure.
    due_at         timestamptz NOT NULL DEFAULT now(),
    holder         text,
    fence          bigint NOT NULL DEFAULT 0,
    attempts       integer NOT NULL DEFAULT 0,
    -- Why the last attempt failed.
    failure_code   text,
    failure_detail text,
    parked_at      timestamptz,
    -- The email, once it was accepted.
    done_at        timestamptz,
    email_id       uuid,
    email_state    text,
    email_rev      bigint,
    -- When the drainer looks at the email again. Null when its state changes no more.
    refresh_at     timestamptz,
    CHECK ((state = 'done') = (email_id IS NOT NULL)),
    CHECK (state <> 'parked' OR failure_code IS NOT NULL)
);

CREATE INDEX rows_pending ON "{schema}".rows (seq) WHERE state = 'pending';
CREATE INDEX rows_pending_age ON "{schema}".rows (offered_at) WHERE state = 'pending';
CREATE INDEX rows_pending_order ON "{schema}".rows (order_key, seq) WHERE state = 'pending' AND order_key IS NOT NULL;
CREATE INDEX rows_parked ON "{schema}".rows (seq) WHERE state = 'parked';
CREATE INDEX rows_refresh ON "{schema}".rows (refresh_at) WHERE refresh_at IS NOT NULL;
