-- OAuth clients that registered themselves. They belong to no team.
CREATE TABLE oauth_clients (
    id              uuid PRIMARY KEY,
    registered_from bytea NOT NULL,         -- keyed hash of the network
    details         text NOT NULL,          -- JSON
    created_at      bigint NOT NULL,
    connected_at    bigint                  -- when a person first connected it
);
CREATE INDEX oauth_clients_network ON oauth_clients (registered_from, created_at);
CREATE INDEX oauth_clients_unconnected ON oauth_clients (created_at) WHERE connected_at IS NULL;
