"""Takes backups: reads brokers or a data folder, and writes the points of a backup. `tidelog.backup` defines the format.

| module | purpose |
|---|---|
| `capture`, `following` | takes a point; takes points continuously |
| `capture_source` | the interface of a source; `broker_capture` and `folder_capture` implement it |
| `partition_capture`, `partition_writer` | reads a partition's new records; writes its segments |
| `piece_builder`, `joining` | builds a piece and its indexes from batches; joins small pieces |
| `cut` | the offsets at which no transaction is split |
| `rights`, `figures` | reads ACLs, quotas and users; writes metrics |
"""
