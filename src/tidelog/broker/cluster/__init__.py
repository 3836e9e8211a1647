"""A broker as a member of a cluster: how it registers, gets its metadata, and follows its controllers.

| read | for |
|---|---|
| `startup` | choosing the kind of broker by its configuration |
| `kraft/` | a member under KRaft's controllers |
| `zookeeper/` | a member under ZooKeeper and a controller among the brokers |

Both implement the protocol `peers.metadata_plane.MetadataPlane`.
"""
