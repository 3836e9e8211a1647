"""The keys and values of coordinators' records in `__consumer_offsets` and `__transaction_state`.

| module | records |
|---|---|
| `versioned` | the encoding of stored messages, which begins with their version |
| `offset_commit` | a committed offset: group, topic, partition |
| `group_metadata` | a group with its members |
| `consumer_group`, `share_group`, `streams_group` | groups of the newer protocols |
| `share_state` | start offsets of share groups, in `__share_group_state` |
| `transaction_log` | a transactional id and its transaction |
| `consumer_protocol` | subscriptions and assignments of members of type "consumer", inside a group's record |
"""
