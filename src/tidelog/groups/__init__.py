"""Consumer groups as data, without I/O. Brokers and folder readers share one reader of ``__consumer_offsets``.

| module | owns |
|---|---|
| `group_table` | the reader: committed offsets, pending offsets of open transactions, members |
| `group_offsets` | a group's committed offsets, and their expiration |
| `offset_records` | the encoding of record keys and values |
| `description` | a group as listed or described, with its members' assignments |
| `commit_history`, `lag` | the commits that are still in the log; formulas for a group's lag |
| `positions` | groups in which Tidelog's own writers keep positions, which are not consumers' offsets |
| `offsets_topic` | the partition of a group's records |
"""
