"""Compares the replicas of a partition in the data folders of several brokers.

| | |
|---|---|
| `replicas_verify` | all partitions of several folders, and repeated comparisons |
| `partition_comparison` | the replicas of one partition: their ids, leader epochs, batches |
| `replica` | one replica: its log, and what its data folder says about it |
| `compared_range` | the rules for the range of offsets to compare, without I/O |
| `batch_bytes` | the batches of a log as one byte stream, independent of its segments |
| `latest_records` | the latest record of each key, for compacted partitions that were cleaned at different times |
| `difference` | a difference, and what each folder has there |
"""
