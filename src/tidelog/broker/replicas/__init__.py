"""Replicas of partitions: leaders, followers, in-sync replicas, and requests that wait until records are committed.

| read | for |
|---|---|
| `replicas` | all replicas of this broker, updated from the metadata; finds followers that lag |
| `partition`, `remote_replica` | one replica: whether it leads or follows, its ISR, its high watermark |
| `cluster_leadership` | decides which requests this broker may serve; the APIs call it |
| `isr_changes` | ISR changes proposed to the controller |
| `offset_waits`, `delayed_produce` | acks=all: responses that wait until records are committed |
| `fetchers`, `following/` | following all leaders; fetching from one leader |
| `replica_numbers` | metrics |
| `replication_quota` | replication throttling |
| `replica_selector` | the preferred read replica of a consumer |
"""
