-- The guards that hold an email, with commas between them. NULL when none does. An email that was cancelled while it was
-- held keeps them, because it never passed them.
ALTER TABLE emails ADD COLUMN holds text;
UPDATE emails e SET holds = guard
 WHERE guard IN ('approval', 'cap', 'overlaps', 'looks_duplicate')
   AND EXISTS (SELECT FROM handoffs h WHERE h.team = e.team AND h.email = e.id AND h.state IN ('held', 'cancelled'));
-- Email that waits for room in a budget.
CREATE INDEX emails_held_by_budget ON emails (team, id) WHERE string_to_array(holds, ',') @> ARRAY['budget'];
-- Held email counts when it is released. Until now it was counted when it was accepted.
WITH gone AS (
    DELETE FROM budget_charges c USING handoffs h
     WHERE h.team = c.team AND h.email = c.email AND h.state = 'held'
    RETURNING c.team, c.budget, c.period_start, c.amount
)
UPDATE budget_usage u SET used = greatest(u.used - g.amount, 0)
  FROM (SELECT team, budget, period_start, sum(amount) AS amount FROM gone GROUP BY team, budget, period_start) g
 WHERE u.team = g.team AND u.budget = g.budget AND u.period_start = g.period_start;
