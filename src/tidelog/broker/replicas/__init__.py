"""Replicas of partitions: who leads, who follows, who is in sync, and what waits until records are committed.

| read | for |
|---|---|
| `partition`, `remote_replica` | one replica: leader or follower, who is in sync, how far records are committed |
| `delayed_produce` | acks=all: answers that wait until records are committed |
| `fetchers`, `following/` | all that is followed; how one leader is followed |
| `replication_quota` | throttles of replication |
| `replica_selector` | which replica a consumer is sent to |
"""
