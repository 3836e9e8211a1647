"""A broker's access to the rest of its cluster: the metadata, the controllers and the other brokers.

| read | for |
|---|---|
| `metadata_plane` | the protocol for the cluster's metadata and controllers; `cluster` implements it for KRaft and ZooKeeper |
| `brokers`, `cluster_brokers` | the brokers whose addresses clients get |
| `channel`, `peer_connection` | requests to another broker, or to a controller |
| `broker_channels` | the leader of a partition, and requests to it |
| `forwarding`, `forwarded_apis` | clients' requests that the controllers answer |
"""
