"""What coordinators keep: the keys and values of the records in `__consumer_offsets` and `__transaction_state`.

| module | records |
|---|---|
| `versioned` | how a stored message is written: its version first |
| `offset_commit` | a committed offset: group, topic, partition |
| `group_metadata` | a group with its members |
| `consumer_group`, `share_group`, `streams_group` | groups of the newer protocols |
| `share_state` | how far share groups are, in `__share_group_state` |
| `transaction_log` | a transactional id with its transaction |
| `consumer_protocol` | what members of type "consumer" exchange, inside a group's record |
"""
