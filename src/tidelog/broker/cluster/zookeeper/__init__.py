"""A member of a ZooKeeper-based cluster, in which an Apache Kafka broker is the controller.

Only the broker's role is implemented: it registers, executes the controller's requests, and changes the ISR of partitions that it
leads. It never becomes the controller (``/controller``).

| read | for |
|---|---|
| `member` | a member's start and end |
| `zookeeper_plane` | the parts, as one `MetadataPlane` |
| `session` | ZooKeeper through kazoo, for the event loop |
| `znode_values` | the broker's znode; znodes written by others, parsed and checked |
| `controller_requests`, `controller_apis` | LeaderAndIsr, UpdateMetadata, StopReplica |
| `cluster_state` | applies these requests to the metadata image |
| `configs` | properties of topics and brokers |
| `isr_znodes` | writes the ISR to znodes, as before KIP-497 |
| `controller_link` | the broker's and its clients' requests to the controller |
"""
