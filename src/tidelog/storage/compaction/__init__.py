"""Of each key the latest record stays: which log is compacted, and how. `log_cleaner.LogCleaner` is the way in."""
