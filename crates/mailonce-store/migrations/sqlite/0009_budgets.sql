-- How much of each budget was used in each period. The budgets themselves are records.
CREATE TABLE budget_usage (
    team INTEGER NOT NULL,
    budget BLOB NOT NULL,           -- the id of the record
    period_start INTEGER NOT NULL,
    ends_at INTEGER NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (team, budget, period_start)
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_usage_ended ON budget_usage (ends_at);

-- Whether only mail whose sender is authenticated counts in a watch.
ALTER TABLE watches ADD COLUMN require_auth INTEGER NOT NULL DEFAULT 0;
