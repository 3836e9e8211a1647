"""Consumer groups by the classic protocol: who is a member, who gets which partitions, and how far the group has read.

| read | for |
|---|---|
| `group` | a group and its members: data, states, results of joining and syncing |
| `joining`, `delayed_response` | what a member asks for, answers that come later |
| `rebalance` | how a group comes to its next generation; sessions |
| `membership` | members added, replaced, removed; protocols, the leader |
| `groups` | all groups: found, made, stored in ``__consumer_offsets``, loaded, expired, removed |
| `offset_commits` | who may commit offsets, and how they get into the log |
| `subscriptions` | which topics its members read |
| `group_lags` | how far behind groups are, for a scraper |
| `group_records` | groups as Kafka's records, and back; offsets are in `tidelog.groups` |

The APIs are in `apis/`, one file each.
"""
