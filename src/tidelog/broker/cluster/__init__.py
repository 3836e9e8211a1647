"""A broker of a cluster: how it reaches other nodes, and where its metadata comes from.

| read | for |
|---|---|
| `metadata_plane` | what the broker asks of whatever knows the cluster |
| `starting` | which broker a configuration asks for |
| `brokers`, `cluster_brokers`, `cluster_topics` | what clients get to see of brokers and topics |
| `topic_creation` | topics that are created because somebody uses them |
| `forwarding`, `forwarded_apis` | clients' requests that the controllers answer |
| `channel`, `peer_connection` | requests to another broker, or to a controller |
| `other_brokers` | who leads a partition, and requests to it |
"""
