-- The functions of an outbox. Install and upgrade replace all of them. They run with the rights of the owner, so that an
-- application and a drainer need EXECUTE on them and no right to a table. search_path is fixed, because a function with
-- the owner's rights must not call what a caller has put into another schema.

-- Puts an email into the outbox, in the transaction of the caller. Returns the id of the row.
CREATE OR REPLACE FUNCTION "{schema}".send(payload jsonb, key text DEFAULT NULL, order_key text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    bytes integer;
    row_id uuid;
BEGIN
    IF payload IS NULL OR jsonb_typeof(payload) <> 'object' THEN
        RAISE EXCEPTION 'the payload of an outbox must be a JSON object' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Pass the body of POST /v1/emails, with from, to and text or html.';
    END IF;
    IF NOT payload ?& ARRAY['from', 'to'] THEN
        RAISE EXCEPTION 'the payload of an outbox must have from and to' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Pass the body of POST /v1/emails, with from, to and text or html.';
    END IF;
    bytes := octet_length(payload::text);
    IF bytes > {max_payload_bytes} THEN
        RAISE EXCEPTION 'the payload has % bytes; an outbox takes at most {max_payload_bytes}', bytes
            USING ERRCODE = 'program_limit_exceeded', HINT = 'Send fewer or smaller attachments.';
    END IF;
    IF key IS NOT NULL AND (length(key) > {max_key_chars} OR btrim(key) = '' OR key ~ '[^\x20-\x7e]') THEN
        RAISE EXCEPTION 'the key of an email must be 1 to {max_key_chars} printable ASCII characters'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Choose a key that identifies the email, such as order-4821-confirmation.';
    END IF;
    IF order_key IS NOT NULL AND (octet_length(order_key) > {max_key_chars} OR order_key = '') THEN
        RAISE EXCEPTION 'order_key must have 1 to {max_key_chars} bytes' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Emails with the same order_key are accepted one after the other; pass null when order does not matter.';
    END IF;
    INSERT INTO "{schema}".rows (payload, payload_bytes, key, order_key)
    VALUES (payload, bytes, key, order_key) RETURNING id INTO row_id;
    PERFORM pg_notify('{schema}', '');
    RETURN row_id;
END $$;

-- Puts a claim into the outbox, in the transaction of the caller: a worker takes it with POST /v1/claims and gets the
-- payload. Returns the id of the row.
CREATE OR REPLACE FUNCTION "{schema}".claim(key text, payload jsonb)
RETURNS uuid LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    bytes integer;
    row_id uuid;
BEGIN
    IF key IS NULL OR length(key) > {max_key_chars} OR btrim(key) = '' OR key ~ '[^\x20-\x7e]' THEN
        RAISE EXCEPTION 'the key of a claim must be 1 to {max_key_chars} printable ASCII characters'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Choose a key that identifies the side effect, such as invoice-4821.';
    END IF;
    IF payload IS NULL THEN
        RAISE EXCEPTION 'the payload of a claim must be JSON' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'Pass what the worker needs; ''{}'' if the key says it all.';
    END IF;
    bytes := octet_length(payload::text);
    IF bytes > {max_payload_bytes} THEN
        RAISE EXCEPTION 'the payload has % bytes; an outbox takes at most {max_payload_bytes}', bytes
            USING ERRCODE = 'program_limit_exceeded', HINT = 'Pass a reference to the data, such as the id of a row.';
    END IF;
    INSERT INTO "{schema}".rows (kind, payload, payload_bytes, key)
    VALUES ('claim', payload, bytes, key) RETURNING id INTO row_id;
    PERFORM pg_notify('{schema}', '');
    RETURN row_id;
END $$;

-- Identifies the server and the database. A restore, a clone and a failover change it. A part that the owner may not read
-- is 'unknown', and then only the other parts are compared.
CREATE OR REPLACE FUNCTION "{schema}".server_identity()
RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    system_identifier text := 'unknown';
    timeline text := 'unknown';
BEGIN
    BEGIN
        SELECT s.system_identifier::text INTO system_identifier FROM pg_control_system() s;
    EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
        system_identifier := 'unknown';
    END;
    BEGIN
        -- From the name of the current WAL file, because the control file lags behind after a promotion.
        timeline := left(pg_walfile_name(pg_current_wal_flush_lsn()), 8);
    EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
        timeline := 'unknown';
    END;
    RETURN format('system=%s timeline=%s database=%s table=%s', system_identifier, timeline,
        (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()), '"{schema}".rows'::regclass::oid);
END $$;

-- The version of the schema and the id of the outbox.
CREATE OR REPLACE FUNCTION "{schema}".version(OUT schema_version integer, OUT outbox_id uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT i.schema_version, i.outbox_id FROM "{schema}".install i
$$;

-- Refuses a database that was restored, cloned or failed over since an operator confirmed it.
CREATE OR REPLACE FUNCTION "{schema}".check_identity()
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    confirmed text;
    found text := "{schema}".server_identity();
BEGIN
    SELECT i.server_identity INTO confirmed FROM "{schema}".install i;
    IF confirmed IS DISTINCT FROM found THEN
        RAISE EXCEPTION 'confirmed is %, found is %', confirmed, found USING ERRCODE = 'MO001';
    END IF;
END $$;

-- Why the rows of the source table cannot be read; null when they can. An application that inserts and deletes a row in
-- one transaction, as is usual with Debezium, leaves nothing that anybody could read but the connector.
CREATE OR REPLACE FUNCTION "{schema}".source_problem()
RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source "{schema}".source;
    source_name text;
    has_rows boolean;
    inserted bigint;
    deleted bigint;
BEGIN
    SELECT * INTO source FROM "{schema}".source s;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    source_name := format('%I.%I', source.table_schema, source.table_name);
    IF to_regclass(source_name) IS NULL THEN
        RETURN format('the table %s does not exist', source_name);
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %s)', source_name) INTO has_rows;
    SELECT t.n_tup_ins - source.seen_inserts, t.n_tup_del - source.seen_deletes INTO inserted, deleted
      FROM pg_stat_all_tables t WHERE t.relid = to_regclass(source_name);
    -- Inserts that were rolled back count as well, but nobody deletes their rows. Rows that somebody saw may be deleted.
    IF NOT has_rows AND inserted >= {min_unseen_rows} AND deleted - source.seen_rows >= {min_unseen_rows} THEN
        RETURN format('%s rows were inserted into %s and deleted before anybody could read them', inserted, source_name);
    END IF;
    RETURN NULL;
END $$;

-- Copies new rows of the source table into the outbox, if it has one. Returns how many; null without a source table.
CREATE OR REPLACE FUNCTION "{schema}".collect(max_rows integer)
RETURNS integer LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    source "{schema}".source;
    source_name text;
    order_key text := 'NULL::text';
    problem text;
    copied integer;
    row_count bigint;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM "{schema}".source) THEN
        RETURN NULL;
    END IF;
    PERFORM "{schema}".check_identity();
    -- One drainer at a time is enough.
    SELECT * INTO source FROM "{schema}".source s FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    problem := "{schema}".source_problem();
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION '%', problem USING ERRCODE = 'MO003';
    END IF;
    source_name := format('%I.%I', source.table_schema, source.table_name);
    IF (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = to_regclass(source_name) AND NOT a.attisdropped
           AND a.attname IN ('aggregatetype', 'aggregateid')) = 2 THEN
        order_key := 'left(s.aggregatetype::text || ''/'' || s.aggregateid::text, {max_key_chars})';
    END IF;
    -- The table has no column that says in which order its rows were written. The transaction that wrote a row, and the
    -- statement within it, do.
    EXECUTE format(
        'WITH new_rows AS (
            SELECT s.id, coalesce(s.payload, ''null'') AS payload, %s AS order_key,
                   row_number() OVER (ORDER BY age(s.xmin) DESC, s.cmin::text::bigint, s.ctid) AS position
              FROM %s s
             WHERE s.type::text = ANY ($1) AND NOT EXISTS (SELECT 1 FROM "{schema}".collected c WHERE c.id = s.id)
             ORDER BY position LIMIT $2
         ), taken AS (
            INSERT INTO "{schema}".collected (id) SELECT n.id FROM new_rows n ON CONFLICT DO NOTHING RETURNING id
         )
         INSERT INTO "{schema}".rows (payload, payload_bytes, key, order_key)
         SELECT n.payload, octet_length(n.payload::text), ''outbox-'' || n.id, n.order_key
           FROM new_rows n JOIN taken t ON t.id = n.id ORDER BY n.position',
        order_key, source_name) USING source.types, max_rows;
    GET DIAGNOSTICS copied = ROW_COUNT;
    EXECUTE format('SELECT count(*) FROM %s', source_name) INTO row_count;
    IF row_count > 0 THEN
        UPDATE "{schema}".source s SET seen_inserts = t.n_tup_ins, seen_deletes = t.n_tup_del, seen_rows = row_count
          FROM pg_stat_all_tables t
         WHERE t.relid = to_regclass(source_name)
           AND (s.seen_inserts, s.seen_deletes, s.seen_rows) IS DISTINCT FROM (t.n_tup_ins, t.n_tup_del, row_count);
    END IF;
    IF copied = 0 AND random() < 0.001 THEN
        -- The application deleted these rows. Once in a while is enough.
        EXECUTE format('DELETE FROM "{schema}".collected c WHERE NOT EXISTS (SELECT 1 FROM %s s WHERE s.id = c.id)', source_name);
    END IF;
    RETURN copied;
END $$;

-- Locks the oldest open row of up to max_rows order keys, where it is due, and returns their positions. Leased and paused
-- rows are open, so they hold up the later rows of their key.
--
-- It goes from key to key in the index and reads one row of each, because thousands may wait behind it. It begins after the
-- last key that this session looked at, so that no key starves behind others that always have a due row. It looks at
-- {max_lease_keys} keys at most, because a stop may pause the rows of any number of keys; the next lease goes on from there.
CREATE OR REPLACE FUNCTION "{schema}".lock_order_heads(max_rows integer)
RETURNS SETOF bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first_key text := coalesce(current_setting('mailonce.last_order_key', true), '');
    last_key text := first_key;
    has_wrapped boolean := false;
    remaining integer := max_rows;
    head record;
    is_due boolean;
BEGIN
    FOR looked_at IN 1..{max_lease_keys} LOOP
        EXIT WHEN remaining <= 0;
        SELECT r.seq, r.order_key, r.due_at INTO head
          FROM "{schema}".rows r
         WHERE r.state = 'pending' AND r.order_key > last_key ORDER BY r.order_key, r.seq LIMIT 1;
        IF head.seq IS NULL AND NOT has_wrapped THEN
            has_wrapped := true;
            last_key := '';
            CONTINUE;
        END IF;
        EXIT WHEN head.seq IS NULL OR has_wrapped AND head.order_key > first_key;
        last_key := head.order_key;
        CONTINUE WHEN head.due_at > now();
        -- Another drainer may have leased or marked the row meanwhile. The state is no condition, because it would let
        -- PostgreSQL read all pending rows in another index.
        SELECT r.state = 'pending' AND r.due_at <= now() INTO is_due FROM "{schema}".rows r WHERE r.seq = head.seq FOR UPDATE SKIP LOCKED;
        IF is_due THEN
            RETURN NEXT head.seq;
            remaining := remaining - 1;
        END IF;
    END LOOP;
    PERFORM set_config('mailonce.last_order_key', last_key, false);
END $$;

-- Leases due rows to a drainer, oldest first; of each order key only the oldest open row. A drainer names the version of
-- the schema that it knows, because a later version may have rows that it would misread.
--
-- Its plans are cached, also those of a time when the table was small. The settings leave it the indexes in their order,
-- because everything else reads all rows of a large table. Without `jit = off`, PostgreSQL would compile each plan in which
-- it cannot avoid what is off.
CREATE OR REPLACE FUNCTION "{schema}".lease(drainer text, max_rows integer, lease_ms bigint, drainer_version integer)
RETURNS TABLE (id uuid, fence bigint, payload text, key text, attempts integer, kind text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
#variable_conflict use_column
DECLARE
    installed integer;
BEGIN
    SELECT i.schema_version INTO installed FROM "{schema}".install i;
    IF installed <> drainer_version THEN
        RAISE EXCEPTION '%', installed USING ERRCODE = 'MO002';
    END IF;
    PERFORM "{schema}".check_identity();
    -- The key of an older row may be forgotten, so accepting it could send a second email.
    UPDATE "{schema}".rows r
       SET state = 'parked', parked_at = now(), is_reported = false, holder = NULL, failure_code = 'too_old',
           failure_detail = 'the row waited for more than {max_age_days} days, and its key may be forgotten: check whether it was accepted before you replay it'
     WHERE r.state = 'pending' AND r.due_at <= now() AND r.offered_at < now() - interval '{max_age_days} days';
    RETURN QUERY
    WITH free AS (
        SELECT r.seq, r.payload_bytes
          FROM "{schema}".rows r
         WHERE r.state = 'pending' AND r.order_key IS NULL AND r.due_at <= now()
         ORDER BY r.seq LIMIT max_rows FOR UPDATE SKIP LOCKED
    ), heads AS (
        SELECT r.seq, r.payload_bytes FROM "{schema}".lock_order_heads(max_rows) h (seq) JOIN "{schema}".rows r ON r.seq = h.seq
    ), candidates AS (
        SELECT * FROM free UNION ALL SELECT * FROM heads ORDER BY seq LIMIT max_rows
    ), chosen AS (
        SELECT c.seq FROM (
            SELECT c.seq, sum(c.payload_bytes) OVER (ORDER BY c.seq) - c.payload_bytes AS bytes_before FROM candidates c
        -- PostgreSQL cannot end the session of a client that stands still on a local socket, so the answer must fit into the
        -- buffer of the socket.
        ) c WHERE c.bytes_before < CASE WHEN inet_client_addr() IS NULL THEN {max_local_lease_bytes} ELSE {max_lease_bytes} END
    )
    UPDATE "{schema}".rows r
       SET holder = drainer, fence = r.fence + 1, attempts = r.attempts + 1,
           due_at = now() + lease_ms * interval '1 millisecond'
      FROM chosen c WHERE r.seq = c.seq
    RETURNING r.id, r.fence, r.payload::text, r.key, r.attempts, r.kind;
END $$;

-- Drainers of version 1 call this. They would send a claim as an email.
CREATE OR REPLACE FUNCTION "{schema}".lease(drainer text, max_rows integer, lease_ms bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'this outbox has a newer schema than version 1: start the mailonce that upgraded it'
        USING ERRCODE = 'feature_not_supported';
END $$;

-- Records the outcomes of leased rows: done, parked, or pending again after a pause. Returns the rows that the drainer
-- still had.
CREATE OR REPLACE FUNCTION "{schema}".record_outcomes(outcomes jsonb)
RETURNS SETOF uuid LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE "{schema}".rows r
       SET state = o.state, holder = NULL, failure_code = o.code, failure_detail = o.detail,
           done_at = CASE WHEN o.state = 'done' THEN now() END,
           parked_at = CASE WHEN o.state = 'parked' THEN now() END, is_reported = o.state <> 'parked',
           due_at = CASE WHEN o.state = 'pending' THEN now() + o.pause_ms * interval '1 millisecond' ELSE r.due_at END,
           email_id = o.email_id, email_state = o.email_state, email_rev = o.email_rev, claim_id = o.claim_id,
           -- Most emails are sent within a second.
           refresh_at = CASE WHEN o.may_change THEN now() + interval '1 second' END
      FROM jsonb_to_recordset(outcomes) AS o (id uuid, fence bigint, state text, code text, detail text, pause_ms bigint,
           email_id uuid, email_state text, email_rev bigint, may_change boolean, claim_id uuid)
     WHERE r.id = o.id AND r.fence = o.fence AND r.state = 'pending'
    RETURNING r.id
$$;

-- Rows whose email may have changed since the last look. The longer ago the accept, the rarer the look.
CREATE OR REPLACE FUNCTION "{schema}".rows_to_refresh(max_rows integer)
RETURNS TABLE (id uuid, email_id uuid, email_state text, email_rev bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    UPDATE "{schema}".rows r
       SET refresh_at = CASE WHEN r.done_at > now() - interval '{follow_days} days' OR r.email_state <> 'sent'
                             THEN now() + greatest(interval '1 second', least(interval '1 hour', (now() - r.done_at) / 4)) END
     WHERE r.seq IN (
        SELECT o.seq FROM "{schema}".rows o WHERE o.refresh_at <= now() ORDER BY o.refresh_at LIMIT max_rows FOR UPDATE SKIP LOCKED)
    RETURNING r.id, r.email_id, r.email_state, r.email_rev;
END $$;

-- Writes a later state of its email to a row.
CREATE OR REPLACE FUNCTION "{schema}".write_back(row_id uuid, new_state text, new_rev bigint, may_change boolean)
RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE "{schema}".rows r
       SET email_state = new_state, email_rev = new_rev,
           refresh_at = CASE WHEN may_change THEN coalesce(r.refresh_at, now() + interval '1 second') END
     WHERE r.id = row_id AND r.state = 'done' AND r.email_rev < new_rev;
    RETURN FOUND;
END $$;

-- Dead letters, newest first.
CREATE OR REPLACE FUNCTION "{schema}".parked(before_seq bigint, max_rows integer)
RETURNS TABLE (seq bigint, id uuid, key text, order_key text, code text, detail text, attempts integer, created_ms bigint, parked_ms bigint,
    kind text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.seq, r.id, r.key, r.order_key, r.failure_code, coalesce(r.failure_detail, ''), r.attempts,
           (extract(epoch FROM r.created_at) * 1000)::bigint, (extract(epoch FROM r.parked_at) * 1000)::bigint, r.kind
      FROM "{schema}".rows r
     WHERE r.state = 'parked' AND (before_seq IS NULL OR r.seq < before_seq)
     ORDER BY r.seq DESC LIMIT max_rows
$$;

-- Whether a row is a dead letter; null when there is no such row.
CREATE OR REPLACE FUNCTION "{schema}".is_parked(row_id uuid)
RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.state = 'parked' FROM "{schema}".rows r WHERE r.id = row_id
$$;

-- Dead letters that were not reported to the team yet, oldest first.
CREATE OR REPLACE FUNCTION "{schema}".unreported(max_rows integer)
RETURNS TABLE (id uuid, kind text, code text, parked_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM "{schema}".check_identity();
    RETURN QUERY
    SELECT r.id, r.kind, r.failure_code, (extract(epoch FROM r.parked_at) * 1000)::bigint
      FROM "{schema}".rows r WHERE NOT r.is_reported AND r.state = 'parked' ORDER BY r.seq LIMIT max_rows;
END $$;

-- Marks dead letters as reported, unless they were replayed and parked again meanwhile.
CREATE OR REPLACE FUNCTION "{schema}".mark_reported(row_ids uuid[], parked_times bigint[])
RETURNS void LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE "{schema}".rows r SET is_reported = true
      FROM unnest(row_ids, parked_times) AS t (id, parked_ms)
     WHERE r.id = t.id AND (extract(epoch FROM r.parked_at) * 1000)::bigint = t.parked_ms
$$;

-- Offers a dead letter again, once for each request. Any other row stays as it is.
CREATE OR REPLACE FUNCTION "{schema}".replay(row_id uuid, request uuid)
RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE "{schema}".rows r
       SET state = 'pending', parked_at = NULL, due_at = now(), offered_at = now(), attempts = 0, last_replay = request
     WHERE r.id = row_id AND r.state = 'parked' AND r.last_replay IS DISTINCT FROM request;
    IF FOUND THEN
        PERFORM pg_notify('{schema}', '');
    END IF;
    RETURN FOUND;
END $$;

-- What the outbox contains, on which server it is, and which table it reads.
CREATE OR REPLACE FUNCTION "{schema}".status(OUT outbox_id uuid, OUT schema_version integer, OUT confirmed_identity text,
    OUT current_identity text, OUT pending bigint, OUT parked bigint, OUT oldest_pending_s bigint, OUT source_table text,
    OUT source_types text[], OUT source_problem text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT i.outbox_id, i.schema_version, i.server_identity, "{schema}".server_identity(),
           (SELECT count(*) FROM "{schema}".rows r WHERE r.state = 'pending'),
           (SELECT count(*) FROM "{schema}".rows r WHERE r.state = 'parked'),
           (SELECT extract(epoch FROM now() - min(r.offered_at))::bigint FROM "{schema}".rows r WHERE r.state = 'pending'),
           (SELECT format('%I.%I', s.table_schema, s.table_name) FROM "{schema}".source s),
           (SELECT s.types FROM "{schema}".source s), "{schema}".source_problem()
      FROM "{schema}".install i
$$;

-- An operator confirms that this database may be drained, although it was restored, cloned or failed over, and that the
-- rows of its source table stay long enough to be read.
CREATE OR REPLACE FUNCTION "{schema}".confirm()
RETURNS text LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE "{schema}".source s SET seen_inserts = t.n_tup_ins, seen_deletes = t.n_tup_del, seen_rows = 0
      FROM pg_stat_all_tables t WHERE t.relid = to_regclass(format('%I.%I', s.table_schema, s.table_name));
    UPDATE "{schema}".install SET server_identity = "{schema}".server_identity(), confirmed_at = now()
    RETURNING server_identity
$$;

-- By default everybody may execute a new function.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA "{schema}" FROM PUBLIC;
