"""Topics of a data folder: creating, enlarging, configuring, adopting and deleting them; their settings and statistics."""
