-- Where each email was counted, so that one that moves to another time takes its charges along. Emails that were
-- accepted before this table existed have no rows: a move counts them anew and gives nothing back.
CREATE TABLE budget_charges (
    team         uuid   NOT NULL,
    email        uuid   NOT NULL,
    budget       uuid   NOT NULL,               -- the id of the record
    period_start bigint NOT NULL,
    ends_at      bigint NOT NULL,
    amount       bigint NOT NULL,
    PRIMARY KEY (team, email, budget)
);
CREATE INDEX budget_charges_ended ON budget_charges (ends_at);
