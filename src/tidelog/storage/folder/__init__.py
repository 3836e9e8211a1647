"""A data folder as a whole: its lock, its identity, its checkpoints, its clean end, writes into many partitions at once."""
