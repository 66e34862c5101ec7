-- Whom a team mailed, as hashes under the installation's secret. They stay when the email is deleted.
CREATE TABLE contacts (
    team INTEGER NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (team, hash)
) WITHOUT ROWID;
