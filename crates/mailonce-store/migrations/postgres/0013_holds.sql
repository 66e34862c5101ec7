-- The guards that hold an email, with commas between them. NULL when none does. An email that was cancelled while it was
-- held keeps them, because it never passed them.
ALTER TABLE emails ADD COLUMN holds text;
UPDATE emails e SET holds = guard
 WHERE guard IN ('approval', 'cap', 'overlaps', 'looks_duplicate')
   AND EXISTS (SELECT FROM handoffs h WHERE h.team = e.team AND h.email = e.id AND h.state IN ('held', 'cancelled'));
-- Email that waits for room in a budget.
CREATE INDEX emails_held_by_budget ON emails (team, id) WHERE strpos(holds, 'budget') > 0;
