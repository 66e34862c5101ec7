-- Where each email was counted, so that one that moves to another time takes its charges along. Emails that were
-- accepted before this table existed have no rows: a move counts them anew and gives nothing back.
CREATE TABLE budget_charges (
    email INTEGER NOT NULL,
    budget BLOB NOT NULL,           -- the id of the record
    period_start INTEGER NOT NULL,
    ends_at INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (email, budget)
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_charges_ended ON budget_charges (ends_at);
