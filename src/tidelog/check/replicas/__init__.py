"""Do the replicas of a partition, in the data folders of several brokers, hold the same?

| | |
|---|---|
| `replicas_verify` | all partitions of several folders: what is compared again, and when |
| `partition_comparison` | the replicas of one partition: their ids, leader epochs, batches |
| `replica` | one of them: a log, and what its folder says of it |
| `compared_range` | the pure rules: from which offset to which |
| `batch_bytes` | the batches of a log as one stream of bytes, whatever its segments are |
| `latest_records` | of compacted partitions, cleaned at different times: the latest record of each key |
| `difference` | what differs, and what stands in each folder |
"""
