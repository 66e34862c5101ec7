-- Claims: the once-only right to a side effect.
CREATE TABLE claims (
    id        uuid PRIMARY KEY,
    team      uuid NOT NULL,
    key       uuid NOT NULL,    -- the hash of the key
    state     text NOT NULL,
    due_at    bigint,           -- when its lease or its policy's pause ends
    forget_at bigint,
    claim     text NOT NULL,    -- JSON
    result    bytea,
    UNIQUE (team, key)
);
CREATE INDEX claims_team ON claims (team, id);
CREATE INDEX claims_due ON claims (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX claims_forget ON claims (forget_at) WHERE forget_at IS NOT NULL;
CREATE INDEX claims_unknown ON claims (id) WHERE state = 'unknown';

-- How often the key of a forgotten claim was bound.
CREATE TABLE claim_tombstones (
    team         uuid NOT NULL,
    key          uuid NOT NULL,
    binds        int NOT NULL,
    forgotten_at bigint NOT NULL,
    PRIMARY KEY (team, key)
);
CREATE INDEX claim_tombstones_age ON claim_tombstones (forgotten_at);
