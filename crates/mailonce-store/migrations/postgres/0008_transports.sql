-- Which transports live processes have, and when one last said so by the clock of this database. A process decides only
-- about transports that it has; what waits for one that nobody has is reported.
CREATE TABLE transports (
    name    text        NOT NULL,
    account text        NOT NULL,   -- a fingerprint of the account behind it
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (name, account)
);

-- Unknown handoffs are looked at by those who have their transport.
DROP INDEX handoffs_doubt;
CREATE INDEX handoffs_doubt ON handoffs (transport, due_at, email, number) WHERE state = 'unknown';
