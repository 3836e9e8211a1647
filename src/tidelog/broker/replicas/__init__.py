"""Replicas of partitions: who leads, who follows, who is in sync, and what waits until records are committed.

| read | for |
|---|---|
| `partition`, `remote_replica` | one replica: leader or follower, who is in sync, how far records are committed |
| `delayed_produce` | acks=all: answers that wait until records are committed |
| `followed_partition` | a partition that is followed: its states, what it asks for, what becomes of errors |
| `truncation_rules` | where a follower's log is cut so that it continues its leader's |
| `fetch_session_client` | what a fetch names of many partitions: the follower's end of KIP-227 |
| `replication_quota` | throttles of replication |
| `replica_selector` | which replica a consumer is sent to |
"""
