-- Rows that become claims, and outcomes that are recorded many at a time.

ALTER TABLE "{schema}".rows
    ADD COLUMN kind text NOT NULL DEFAULT 'email' CHECK (kind IN ('email', 'claim')),
    -- The claim, once it was offered.
    ADD COLUMN claim_id uuid,
    -- The latest request to replay it. The same request again changes nothing.
    ADD COLUMN last_replay uuid,
    DROP CONSTRAINT rows_check,
    ADD CONSTRAINT rows_done CHECK ((state = 'done') = (coalesce(email_id, claim_id) IS NOT NULL)),
    ADD CONSTRAINT rows_claim_key CHECK (kind <> 'claim' OR key IS NOT NULL);

-- Functions whose parameters or results have changed, and those that record_outcomes replaces.
DROP FUNCTION IF EXISTS "{schema}".lease(text, integer, bigint);
DROP FUNCTION IF EXISTS "{schema}".mark_done(uuid, bigint, uuid, text, bigint, boolean);
DROP FUNCTION IF EXISTS "{schema}".park(uuid, bigint, text, text);
DROP FUNCTION IF EXISTS "{schema}".retry_later(uuid, bigint, bigint, text, text);
DROP FUNCTION IF EXISTS "{schema}".parked(bigint, integer);
DROP FUNCTION IF EXISTS "{schema}".replay(uuid);
