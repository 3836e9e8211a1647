"""Tiered topics (KIP-405): a partition whose older segments are in remote storage, read as one log.

| module | has |
|---|---|
| `remote_segments` | what ``__remote_log_metadata`` says about the segments of each partition |
| `lineage` | which remote segments belong to the log, by leader epochs, and where each is cut |
| `layout`, `local_layout`, `aiven_layout` | where remote storage has a segment's files |
| `chunked_file` | a remote file in compressed or encrypted chunks, read as plain bytes |
| `tiered_path` | a partition's folder in which remote segments appear beside the local ones |
| `tiered_log_dir` | a data folder with its remote storage, as a `LogDir` |
| `tier_address` | the address that names a data folder and its remote storage |
"""
