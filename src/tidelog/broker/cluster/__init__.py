"""A broker of a cluster: how it reaches other nodes, and where its metadata comes from.

| read | for |
|---|---|
| `metadata_plane` | the cluster as the broker sees it: a protocol |
| `startup` | which broker a configuration asks for |
| `brokers`, `cluster_brokers`, `cluster_topics` | brokers and topics as clients see them |
| `topic_creation` | topics that are created because a client uses them |
| `forwarding`, `forwarded_apis` | clients' requests that the controllers answer |
| `channel`, `peer_connection` | requests to another broker, or to a controller |
| `broker_channels` | who leads a partition, and requests to it |
"""
