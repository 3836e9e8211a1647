"""A broker as a member of a cluster: how it registers, gets its metadata, and follows its controllers.

| read | for |
|---|---|
| `startup` | the kind of broker that a configuration describes |
| `kraft/` | a member under KRaft's controllers |
| `zookeeper/` | a member under ZooKeeper and a controller among the brokers |

Both implement the protocol `peers.metadata_plane.MetadataPlane`.
"""
