-- Version 5: a lease finds the rows without an order key, and the oldest row of each order key, without reading the rows
-- that wait behind them. The functions `lease` and `lock_order_heads` use one index each.

CREATE INDEX rows_pending_free ON "{schema}".rows (seq) WHERE state = 'pending' AND order_key IS NULL;
DROP INDEX "{schema}".rows_pending;
