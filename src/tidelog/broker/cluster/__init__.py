"""A broker as a member of a cluster: its connections to other nodes, and the source of its metadata.

| read | for |
|---|---|
| `metadata_plane` | the cluster as the broker sees it: a protocol |
| `startup` | the kind of broker that a configuration describes |
| `brokers`, `cluster_brokers`, `cluster_topics` | the brokers and topics that clients see |
| `topic_creation` | topics that are created on first use |
| `forwarding`, `forwarded_apis` | clients' requests that the controllers answer |
| `channel`, `peer_connection` | requests to another broker, or to a controller |
| `broker_channels` | the leader of a partition, and requests to it |
"""
