-- The watch that each consumer has at an inbox from its first call on.
CREATE TABLE implicit_watches (
    team uuid NOT NULL,
    inbox uuid NOT NULL,
    consumer uuid NOT NULL,   -- a keyed hash of its name
    after_seq bigint NOT NULL,
    ends_at bigint NOT NULL,
    PRIMARY KEY (team, inbox, consumer)
);
CREATE INDEX implicit_watches_end ON implicit_watches (ends_at);
