"""Out of a cluster: offsets for times, where to read for a range of time, one partition's batches, topics' sizes and settings."""
