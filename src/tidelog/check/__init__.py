"""Verifies data folders, rebuilds indexes, and migrates old message formats.

| | |
|---|---|
| `folder_verify` | all checks of a folder; `partition_rules` and `expected_partitions` are its pure rules |
| `folder_indexes` | verifies or rebuilds indexes and time maps: drives `partitions`, which consist of `segments` |
| `segment_indexes` | the two indexes of a segment, entry by entry: `offset_index`, `time_index`, `interval_votes` |
| `txn_index`, `batch_table`, `index_files` | aborted transactions; batches as columns; index files read and put in place |
| `finding` | what all of these report |
| `migration` | a folder in message formats v0 and v1, rewritten in v2 |
"""
