"""A data folder as a whole: its lock, identity, checkpoints, clean-shutdown mark, and atomic writes to many partitions."""
