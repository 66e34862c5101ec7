-- What the worker of an offered claim needs. Last, so that lists do not read it.
ALTER TABLE claims ADD COLUMN payload BLOB;
