"""Is a data folder whole and sound? And what makes it so: indexes rebuilt, old formats migrated.

| | |
|---|---|
| `folder_verify` | all that can be said of a folder; `partition_rules` and `expected_partitions` are its pure rules |
| `folder_indexes` | indexes and time maps, verified or rebuilt: the driver over `partitions`, which are made of `segments` |
| `segment_indexes` | the two indexes of a segment, entry by entry: `offset_index`, `time_index`, `index_rules` |
| `txn_index`, `batch_table`, `index_files` | aborted transactions; batches as columns; index files read and put in place |
| `finding` | what all of these report |
| `migration` | a folder in message formats v0 and v1, rewritten in v2 |
"""
