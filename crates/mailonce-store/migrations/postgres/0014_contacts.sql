-- Whom a team mailed, as hashes under the installation's secret. They stay when the email is deleted.
CREATE TABLE contacts (
    team uuid NOT NULL,
    hash uuid NOT NULL,
    PRIMARY KEY (team, hash)
);
