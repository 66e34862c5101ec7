-- The guards that hold an email, with commas between them. NULL when none does. An email that was cancelled while it was
-- held keeps them, because it never passed them.
ALTER TABLE emails ADD COLUMN holds TEXT;
UPDATE emails SET holds = guard
 WHERE guard IN ('approval', 'cap', 'overlaps', 'looks_duplicate')
   AND EXISTS (SELECT 1 FROM handoffs h
                WHERE h.team = emails.team AND h.email = emails.email AND h.state IN ('held', 'cancelled'));
-- Email that waits for room in a budget.
CREATE INDEX emails_held_by_budget ON emails (team, email) WHERE instr(',' || holds || ',', ',budget,') > 0;
-- Held email counts when it is released. Until now it was counted when it was accepted.
UPDATE budget_usage SET used = max(used - (
    SELECT COALESCE(sum(c.amount), 0) FROM budget_charges c JOIN emails e ON e.email = c.email
     WHERE e.team = budget_usage.team AND c.budget = budget_usage.budget AND c.period_start = budget_usage.period_start
       AND EXISTS (SELECT 1 FROM handoffs h WHERE h.team = e.team AND h.email = e.email AND h.state = 'held')), 0);
DELETE FROM budget_charges WHERE EXISTS (
    SELECT 1 FROM emails e JOIN handoffs h ON h.team = e.team AND h.email = e.email
     WHERE e.email = budget_charges.email AND h.state = 'held');
