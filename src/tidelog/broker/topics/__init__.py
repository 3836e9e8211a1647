"""The topics that clients see, and how they are created, grow, and are deleted.

| read | for |
|---|---|
| `topics` | the topics of a broker that is alone; what is asked of any `Topics` |
| `cluster_topics` | the topics of a cluster, from its metadata |
| `topic_changes` | changes that take a while, such as many partitions created at once |
| `topic_creation` | topics that are created on first use, by the controller |
"""
