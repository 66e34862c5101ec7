-- Settled emails that still have a body. A row leaves this index with its body, so a round of retention reads only what
-- is due.
CREATE INDEX emails_with_body ON emails (team, settled_at) WHERE body IS NOT NULL AND settled_at IS NOT NULL;
