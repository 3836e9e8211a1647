"""A broker in a cluster of ZooKeeper's days: a member, under a broker of Apache Kafka's that is the controller.

Only the broker's half: it registers, does what the controller says, and changes in-sync replicas of what it leads. It never
takes ``/controller`` itself.

| read | for |
|---|---|
| `member` | a member's start and end |
| `zookeeper_plane` | the parts, as one `MetadataPlane` |
| `session` | ZooKeeper by kazoo, for the loop |
| `znode_values` | what the znodes of others hold, checked |
| `registration` | the broker's znode |
| `controller_requests`, `controller_apis` | LeaderAndIsr, UpdateMetadata, StopReplica |
| `cluster_state` | what they say, as changes of the image |
| `configs` | properties of topics and brokers |
| `isr_znodes` | in-sync replicas, before the controller changed them (KIP-497) |
| `controller_link` | requests to the controller, the broker's own and those of clients |
"""
