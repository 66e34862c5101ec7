-- Templates: stored wording of emails, in numbered versions that never change.
CREATE TABLE templates (
    id BLOB PRIMARY KEY,
    team INTEGER NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,       -- the newest
    created_at INTEGER NOT NULL,
    UNIQUE (team, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX templates_team ON templates (team, id);

CREATE TABLE template_versions (
    template BLOB NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    source TEXT NOT NULL,           -- JSON
    PRIMARY KEY (template, version)
) STRICT;
