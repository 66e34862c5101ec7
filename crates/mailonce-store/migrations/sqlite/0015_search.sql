-- Full-text search. A document is the searchable form of one email or message; a background worker adds it after the
-- accept. `search_words` indexes the documents. Everything here is erased by triggers with the rows that it was made
-- of, in the same transaction, whatever deletes them.

CREATE TABLE search_documents (
    position INTEGER PRIMARY KEY,   -- milliseconds and 20 bits that tell documents apart; the order of results
    team INTEGER NOT NULL,
    kind INTEGER NOT NULL,          -- 0 an email, 1 a message
    source INTEGER NOT NULL,        -- the ordered bits of its id
    tail INTEGER NOT NULL,
    scope TEXT NOT NULL,            -- exact names: team, kind, inbox, Message-ID and others
    sender TEXT NOT NULL,
    recipients TEXT NOT NULL,
    subject TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX search_documents_source ON search_documents (kind, source);

CREATE VIRTUAL TABLE search_words USING fts5(
    scope, sender, recipients, subject, text,
    content = 'search_documents', content_rowid = 'position', columnsize = 0,
    tokenize = "unicode61 remove_diacritics 0 categories 'L* N* Co Mn Mc'"
);
-- A deleted word leaves the file at once instead of with a later merge.
INSERT INTO search_words (search_words, rank) VALUES ('secure-delete', 1);

-- How far the events of each team are indexed.
CREATE TABLE search_cursors (
    team INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL
) STRICT;

CREATE TRIGGER search_document_added AFTER INSERT ON search_documents BEGIN
    INSERT INTO search_words (rowid, scope, sender, recipients, subject, text)
    VALUES (new.position, new.scope, new.sender, new.recipients, new.subject, new.text);
END;
CREATE TRIGGER search_document_removed AFTER DELETE ON search_documents BEGIN
    INSERT INTO search_words (search_words, rowid, scope, sender, recipients, subject, text)
    VALUES ('delete', old.position, old.scope, old.sender, old.recipients, old.subject, old.text);
END;
CREATE TRIGGER search_document_changed AFTER UPDATE ON search_documents BEGIN
    INSERT INTO search_words (search_words, rowid, scope, sender, recipients, subject, text)
    VALUES ('delete', old.position, old.scope, old.sender, old.recipients, old.subject, old.text);
    INSERT INTO search_words (rowid, scope, sender, recipients, subject, text)
    VALUES (new.position, new.scope, new.sender, new.recipients, new.subject, new.text);
END;

CREATE TRIGGER email_removed_from_search AFTER DELETE ON emails BEGIN
    DELETE FROM search_documents WHERE kind = 0 AND source = old.email;
END;
CREATE TRIGGER message_removed_from_search AFTER DELETE ON messages BEGIN
    DELETE FROM search_documents WHERE kind = 1 AND source = old.message;
END;
-- Addresses and subject stay searchable as long as the email has them.
CREATE TRIGGER body_removed_from_search AFTER UPDATE OF body ON emails
WHEN old.body IS NOT NULL AND new.body IS NULL BEGIN
    UPDATE search_documents SET text = '' WHERE kind = 0 AND source = new.email AND text <> '';
END;
CREATE TRIGGER large_body_removed_from_search AFTER DELETE ON bodies BEGIN
    UPDATE search_documents SET text = '' WHERE kind = 0 AND source = old.email AND text <> '';
END;
