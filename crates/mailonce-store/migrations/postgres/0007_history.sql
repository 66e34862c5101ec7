-- Which history of events the epoch belongs to: system identifier, timeline and the identity of this table. A restore
-- or a failover changes one of them, and the next session that opens renews the epoch. NULL until the first one.
ALTER TABLE install ADD COLUMN history text;
