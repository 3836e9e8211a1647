"""One partition's log: appended to, read, rolled, cut and kept. `partition_log.PartitionLog` is the way in."""
