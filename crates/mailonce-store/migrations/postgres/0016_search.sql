-- Full-text search. A document is the searchable form of one email or message; a background worker adds it after the
-- accept. Triggers erase it with the rows that it was made of, in the same transaction, whatever deletes them.

CREATE TABLE search_documents (
    team     uuid     NOT NULL,
    position bigint   NOT NULL,     -- milliseconds and 20 bits that tell documents apart; the order of results
    kind     smallint NOT NULL,     -- 0 an email, 1 a message
    id       uuid     NOT NULL,
    subject  text     NOT NULL,
    text     text     NOT NULL,
    -- Words of the sender (A), the recipients (B), the subject (C) and the text (D). Exact names begin with # and have
    -- the weight A: team, kind, inbox, Message-ID and others.
    words    tsvector NOT NULL,
    PRIMARY KEY (team, position)
);
CREATE UNIQUE INDEX search_documents_mail ON search_documents (team, kind, id);
-- Words are merged into the index a megabyte at a time, which is twice as fast as one by one. A search reads the pending
-- ones too, so the list must stay short.
CREATE INDEX search_documents_words ON search_documents USING gin (words)
    WITH (fastupdate = on, gin_pending_list_limit = 1024);
-- The planner must know which words are rare.
ALTER TABLE search_documents ALTER COLUMN words SET STATISTICS 1000;

-- How far the events of each team are indexed.
CREATE TABLE search_cursors (
    team uuid   PRIMARY KEY,
    seq  bigint NOT NULL
);

-- Whoever indexes a team holds this lock alone, and whoever erases holds it shared. So a mail that is deleted while its
-- document is written leaves no document.
CREATE FUNCTION lock_search_shared(team uuid) RETURNS void LANGUAGE sql SET search_path = mailonce AS $$
    SELECT pg_advisory_xact_lock_shared(hashtextextended(team::text, 7883366252))
$$;
CREATE FUNCTION erase_email_from_search() RETURNS trigger LANGUAGE plpgsql SET search_path = mailonce AS $$
BEGIN
    PERFORM lock_search_shared(OLD.team);
    DELETE FROM search_documents WHERE team = OLD.team AND kind = 0 AND id = OLD.id;
    RETURN NULL;
END $$;
CREATE FUNCTION erase_message_from_search() RETURNS trigger LANGUAGE plpgsql SET search_path = mailonce AS $$
BEGIN
    PERFORM lock_search_shared(OLD.team);
    DELETE FROM search_documents WHERE team = OLD.team AND kind = 1 AND id = OLD.id;
    RETURN NULL;
END $$;
CREATE FUNCTION erase_body_from_search() RETURNS trigger LANGUAGE plpgsql SET search_path = mailonce AS $$
BEGIN
    PERFORM lock_search_shared(NEW.team);
    UPDATE search_documents SET text = '', words = ts_filter(words, '{a,b,c}')
     WHERE team = NEW.team AND kind = 0 AND id = NEW.id AND text <> '';
    RETURN NULL;
END $$;

CREATE TRIGGER email_removed_from_search AFTER DELETE ON emails
    FOR EACH ROW EXECUTE FUNCTION erase_email_from_search();
CREATE TRIGGER message_removed_from_search AFTER DELETE ON messages
    FOR EACH ROW EXECUTE FUNCTION erase_message_from_search();
-- Addresses and subject stay searchable as long as the email has them.
CREATE TRIGGER body_removed_from_search AFTER UPDATE OF body ON emails
    FOR EACH ROW WHEN (OLD.body IS NOT NULL AND NEW.body IS NULL) EXECUTE FUNCTION erase_body_from_search();
