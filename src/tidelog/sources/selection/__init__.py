"""Selects and sorts records of Arrow batches: by key, header, regular expression, SQL expression; by time."""
