"""Replicas of partitions: who leads, who follows, who is in sync, and what waits until records are committed.

| read | for |
|---|---|
| `replicas` | all replicas here: they follow the metadata; which followers are late |
| `partition`, `remote_replica` | one replica: leader or follower, who is in sync, how far records are committed |
| `cluster_leadership` | what APIs ask of them |
| `isr_changes` | changes of the ISR, proposed to the controller |
| `offset_waits`, `delayed_produce` | acks=all: answers that wait until records are committed |
| `fetchers`, `following/` | all partitions that are followed; how one leader is followed |
| `replica_numbers` | what an operator sees |
| `replication_quota` | throttles of replication |
| `replica_selector` | which replica a consumer is sent to |
"""
