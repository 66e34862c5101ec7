-- Handoffs in states that few emails are in. A list of such emails reads them instead of every email of the team.
CREATE INDEX handoffs_rare ON handoffs (team, state, email)
    WHERE state IN ('held', 'unknown', 'failed', 'bounced', 'complained', 'abandoned', 'cancelled');
