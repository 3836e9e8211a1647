"""Log compaction keeps the latest record of each key. These modules choose the log and compact it; start with
`log_cleaner.LogCleaner`.
"""
