-- Templates: stored wording of emails, in numbered versions that never change.
CREATE TABLE templates (
    id         uuid PRIMARY KEY,
    team       uuid NOT NULL,
    name       text COLLATE "C" NOT NULL,
    version    int NOT NULL,            -- the newest
    created_at bigint NOT NULL,
    UNIQUE (team, name)
);
CREATE INDEX templates_team ON templates (team, id);

CREATE TABLE template_versions (
    template   uuid NOT NULL REFERENCES templates ON DELETE CASCADE,
    version    int NOT NULL,
    created_at bigint NOT NULL,
    source     text NOT NULL,           -- JSON
    PRIMARY KEY (template, version)
);
