-- OAuth clients that registered themselves. They belong to no team.
CREATE TABLE oauth_clients (
    id BLOB PRIMARY KEY,
    registered_from BLOB NOT NULL,  -- keyed hash of the network
    details TEXT NOT NULL,          -- JSON
    created_at INTEGER NOT NULL,
    connected_at INTEGER            -- when a person first connected it
) STRICT, WITHOUT ROWID;
CREATE INDEX oauth_clients_network ON oauth_clients (registered_from, created_at);
CREATE INDEX oauth_clients_unconnected ON oauth_clients (created_at) WHERE connected_at IS NULL;
