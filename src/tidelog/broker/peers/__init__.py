"""The rest of the cluster, as the parts of a broker see it.

| read | for |
|---|---|
| `metadata_plane` | the cluster's metadata and controllers: a protocol, which `cluster` implements for KRaft and ZooKeeper |
| `brokers`, `cluster_brokers` | the brokers whose addresses clients get |
| `channel`, `peer_connection`, `peer_authentication` | requests to another broker, or to a controller |
| `broker_channels` | the leader of a partition, and requests to it |
| `forwarding`, `forwarded_apis` | clients' requests that the controllers answer |
"""
