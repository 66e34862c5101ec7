-- How much of each budget was used in each period. The budgets themselves are records.
CREATE TABLE budget_usage (
    team         uuid   NOT NULL,
    budget       uuid   NOT NULL,               -- the id of the record
    period_start bigint NOT NULL,
    ends_at      bigint NOT NULL,
    used         bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (team, budget, period_start)
);
CREATE INDEX budget_usage_ended ON budget_usage (ends_at);

-- Whether only mail whose sender is authenticated counts in a watch.
ALTER TABLE watches ADD COLUMN require_auth boolean NOT NULL DEFAULT false;
