-- Keys that were bound lately and do not lie in `keys` yet, as each commit left them: 32 bytes a key, its team, hash and
-- email. They are moved to `keys` in the order of that tree, many to a page; a key that lies in both is as `keys` says.
CREATE TABLE fresh_keys (
    block INTEGER PRIMARY KEY,
    keys BLOB NOT NULL
) STRICT;

-- The same index. A list of more than two words costs a table of its own for each row that is inserted; a chain of
-- comparisons costs nothing.
DROP INDEX handoffs_rare;
CREATE INDEX handoffs_rare ON handoffs (team, state, email)
    WHERE state = 'held' OR state = 'unknown' OR state = 'failed' OR state = 'bounced' OR state = 'complained'
        OR state = 'abandoned' OR state = 'cancelled';
