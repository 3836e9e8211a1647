"""Log compaction keeps the latest record of each key: which log is compacted, and how. Start with `log_cleaner.LogCleaner`."""
