"""One partition's log: appends, reads, rolls, truncation, retention. Entry point: `partition_log.PartitionLog`."""
