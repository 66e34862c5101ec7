-- Version 2: rows that become claims, rows of a table of the Debezium outbox router, and outcomes that are recorded many
-- at a time.

ALTER TABLE "{schema}".rows
    ADD COLUMN kind text NOT NULL DEFAULT 'email' CHECK (kind IN ('email', 'claim')),
    -- The claim, once it was offered.
    ADD COLUMN claim_id uuid,
    -- The latest request to replay it. The same request again changes nothing.
    ADD COLUMN last_replay uuid,
    DROP CONSTRAINT rows_check,
    ADD CONSTRAINT rows_done CHECK ((state = 'done') = (coalesce(email_id, claim_id) IS NOT NULL)),
    ADD CONSTRAINT rows_claim_key CHECK (kind <> 'claim' OR key IS NOT NULL);

-- One row when the outbox reads another table.
CREATE TABLE "{schema}".source (
    only_row       boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    table_schema   text NOT NULL,
    table_name     text NOT NULL,
    -- The values of the column type whose rows are emails.
    types          text[] NOT NULL,
    -- Counters of the table when it last had rows, and how many those were. Rows that were inserted and deleted since,
    -- while nobody saw one, cannot be read.
    seen_inserts   bigint NOT NULL,
    seen_deletes   bigint NOT NULL,
    seen_rows      bigint NOT NULL
);

-- The rows of that table that are in the outbox, or were there before it. Ids, never a position: a transaction that took
-- its id earlier may commit later.
CREATE TABLE "{schema}".collected (
    id           uuid PRIMARY KEY,
    collected_at timestamptz NOT NULL DEFAULT now()
);

-- Functions whose parameters or results have changed, and those that record_outcomes replaces.
DROP FUNCTION IF EXISTS "{schema}".lease(text, integer, bigint);
DROP FUNCTION IF EXISTS "{schema}".mark_done(uuid, bigint, uuid, text, bigint, boolean);
DROP FUNCTION IF EXISTS "{schema}".park(uuid, bigint, text, text);
DROP FUNCTION IF EXISTS "{schema}".retry_later(uuid, bigint, bigint, text, text);
DROP FUNCTION IF EXISTS "{schema}".parked(bigint, integer);
DROP FUNCTION IF EXISTS "{schema}".replay(uuid);
DROP FUNCTION IF EXISTS "{schema}".status();
