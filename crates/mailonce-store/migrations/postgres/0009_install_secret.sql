-- The install secret has a table of its own, which changes only when a key encryption key does.
CREATE TABLE install_secret (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    plain   bytea   CHECK (octet_length(plain) = 32),
    -- Encrypted under a key that isn't here.
    wrapped text,
    CHECK (num_nonnulls(plain, wrapped) = 1)
);
INSERT INTO install_secret (plain) SELECT secret FROM install;
ALTER TABLE install DROP COLUMN secret;
