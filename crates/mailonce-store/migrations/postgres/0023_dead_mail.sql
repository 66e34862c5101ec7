-- Dead deliveries that still have their bytes. A row leaves this index with its bytes, so a round of retention reads only
-- what is due.
CREATE INDEX deliveries_dead ON deliveries (team, received_at) WHERE state = 'dead' AND raw IS NOT NULL;
