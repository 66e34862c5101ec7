-- What the worker of an offered claim needs.
ALTER TABLE claims ADD COLUMN payload bytea;
