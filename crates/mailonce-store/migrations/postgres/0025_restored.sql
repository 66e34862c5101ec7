-- Whether these tables were restored from a dump, or moved to another cluster, and no server has dealt with it yet. The
-- next start stops the installation, because email of the dump may have left since.
ALTER TABLE install ADD COLUMN restored boolean NOT NULL DEFAULT false;
