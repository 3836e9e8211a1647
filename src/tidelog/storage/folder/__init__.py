"""A data folder as a whole: its lock, owner, checkpoints and clean-shutdown file, and atomic writes to many partitions."""
