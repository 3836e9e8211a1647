"""Compares the replicas of a partition in the data folders of several brokers.

| | |
|---|---|
| `replicas_verify` | all partitions of several folders, and repeated comparisons |
| `partition_comparison` | the replicas of one partition: their ids, leader epochs, batches |
| `replica` | one replica: its log, and its folder's facts about it |
| `compared_range` | the pure rules for the range of offsets |
| `batch_bytes` | the batches of a log as one byte stream, independent of its segments |
| `latest_records` | the latest record of each key, for compacted partitions that were cleaned at different times |
| `difference` | a difference, with the content of each folder |
"""
