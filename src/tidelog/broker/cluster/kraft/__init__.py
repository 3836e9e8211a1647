"""A broker in a cluster with Apache Kafka's controllers (KRaft, KIP-500, KIP-595, KIP-631). It is never a voter.

| read | for |
|---|---|
| `member` | a member's start and end |
| `kraft_plane` | the parts, as one `MetadataPlane`; envelopes of clients' requests that only the controller can answer |
| `quorum`, `controller_channel` | which controller leads, and requests to it |
| `broker_lifecycle`, `features` | registration, heartbeats, controlled shutdown |
| `directory_assignments` | the data folder of each replica |
| `metadata_fetcher`, `snapshot_fetcher`, `metadata_loader` | the metadata log: fetched, and replayed in slices |
| `metadata_copy` | the folder's own copy of the metadata |
"""
