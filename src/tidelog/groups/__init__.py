"""Groups as data: pure, no file and no socket. One reader of ``__consumer_offsets`` for brokers and for folders.

| read | for |
|---|---|
| `group_table` | the reader: what is committed, what open transactions are about to commit, members |
| `group_offsets` | what a group has committed; what expires |
| `offset_records` | keys and values as they are written |
| `description` | what a group looks like from outside: listed, described, its members' assignments |
| `commit_history`, `lag` | the commits that are still there; how far behind a group is: the formulas |
| `positions` | groups in which Tidelog's own writers keep positions, which are no offsets |
| `offsets_topic` | which partition a group's records are in |
"""
