"""Consumer groups of the classic protocol: members, assignments, and committed offsets.

| read | for |
|---|---|
| `group` | a group and its members: data, states, requests and results |
| `joining`, `delayed_response` | requests of members, and responses that wait |
| `rebalance` | how a group reaches its next generation; session timeouts of members |
| `membership` | adds, replaces and removes members; chooses the protocol and the leader |
| `groups` | all groups: look-up, creation, storage in ``__consumer_offsets``, loading, expiry, removal |
| `offset_commits` | checks offset commits, and writes the offsets to the log |
| `subscriptions` | the topics that members subscribe to |
| `group_records` | converts groups to and from Kafka's records; `tidelog.groups` converts offsets |

The APIs are in `apis/`, one file each.
"""
