"""Selects records of Arrow batches by key, header, regular expression or SQL expression, and sorts them by time."""
