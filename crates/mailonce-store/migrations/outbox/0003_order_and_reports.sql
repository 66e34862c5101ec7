-- Version 3: rows of a table of the Debezium outbox router have the order key of their aggregate, and each dead letter is
-- reported to the team.

ALTER TABLE "{schema}".rows
    -- False while the row is a dead letter that was not reported to the team. Earlier dead letters are not reported.
    ADD COLUMN is_reported boolean NOT NULL DEFAULT true;

CREATE INDEX rows_unreported ON "{schema}".rows (seq) WHERE NOT is_reported;
