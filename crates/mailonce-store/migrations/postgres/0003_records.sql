-- Small things a team owns that are not mail: sending domains, suppressed addresses, sources of events.
CREATE TABLE records (
    id         uuid    PRIMARY KEY,
    team       uuid    NOT NULL,
    kind       text    NOT NULL,
    name       text    COLLATE "C" NOT NULL,
    rev        integer NOT NULL,
    created_at bigint  NOT NULL,
    about      text    NOT NULL     -- JSON, read by the engine alone
);
CREATE UNIQUE INDEX records_name ON records (team, kind, name);
CREATE INDEX records_age ON records (team, kind, id);
