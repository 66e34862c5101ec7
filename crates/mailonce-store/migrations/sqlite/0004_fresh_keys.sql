-- Keys that were bound lately and do not lie in `keys` yet, as each commit left them: 32 bytes a key, its team, hash and
-- email. They are moved to `keys` in the order of that tree, many to a page; a key that lies in both is as `keys` says.
CREATE TABLE fresh_keys (
    block INTEGER PRIMARY KEY,
    keys BLOB NOT NULL
) STRICT;
