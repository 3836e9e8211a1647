"""Topics of a data folder: created, enlarged, configured, adopted, deleted; their settings and statistics."""
