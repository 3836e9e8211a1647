"""Verifies data folders, rebuilds indexes, and migrates old message formats.

| | |
|---|---|
| `folder_verify` | all checks of a folder; `partition_rules` and `expected_partitions` are its pure rules |
| `folder_indexes` | verifies or rebuilds indexes and time maps, partition by partition (`partitions`, `segments`) |
| `segment_indexes` | the two indexes of a segment, entry by entry: `offset_index`, `time_index`, `interval_votes` |
| `piece_indexes` | the indexes of a segment in a backup, which are made piece by piece |
| `txn_index`, `batch_table`, `index_files` | aborted transactions; batches as columns; reading and replacing index files |
| `finding` | what all of these report: something missing, damaged or odd |
| `migration` | a folder in message formats v0 and v1, rewritten in v2 |
"""
