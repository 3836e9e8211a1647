"""A broker as a member of a cluster: how it registers, gets the metadata, and sends requests to the controller.

| read | for |
|---|---|
| `startup` | chooses between a standalone broker and a member, according to the configuration |
| `kraft/` | a member of a KRaft cluster |
| `zookeeper/` | a member of a ZooKeeper cluster, in which another broker is the controller |

Both implement the protocol `peers.metadata_plane.MetadataPlane`.
"""
