"""What coordinators keep: the keys and values of the records in `__consumer_offsets` and `__transaction_state`.

| module | records |
|---|---|
| `versioned` | how a stored message is written: its version first |
| `offset_commit` | a committed offset: group, topic, partition |
| `group_metadata` | a group with its members |
| `transaction_log` | a transactional id with its transaction |
| `consumer_protocol` | what members of type "consumer" exchange, inside a group's record |
"""
