"""A broker of a cluster: how it reaches other nodes, and where its metadata comes from.

| read | for |
|---|---|
| `metadata_plane` | what the broker asks of whatever knows the cluster |
| `channel`, `peer_connection` | requests to another broker, or to a controller |
"""
