"""The topics that clients see, and how they are created, enlarged and deleted.

| read | for |
|---|---|
| `topics` | the topics of a standalone broker; `cluster_topics` has the same interface |
| `cluster_topics` | the topics of a cluster, from its metadata |
| `topic_changes` | runs changes that take a while, such as creating many partitions |
| `topic_creation` | has the controller create topics on first use |
"""
