"""Which index: KIP-33's accepted time index compared with the alternative proposals, on the same log.

| design | of | entry | file here |
|---|---|---|---|
| time index | KIP-33, accepted | timestamp int64, offset int32 | the engine's own `.timeindex`, with its `.index` |
| minute index, second index | KIP-33, rejected option 1 | timestamp int64, offset int32 | `SegmentBaseOffset.time.index` |
| minute map | KIP-33, rejected option 2 | minute int64, offset int32 | `SegmentBaseOffset.minutes` |
| 16-byte offset index | KIP-33, rejected | offset int32, position int32, timestamp int64 | `SegmentBaseOffset.wide.index` |
| append time index | KIP-32, option 3 | LogAppendTime int64, offset int32 | `SegmentBaseOffset.appended` |

| module | |
|---|---|
| `written_log` | a log that the engine writes, from which builders get each batch; scans of the same log |
| `builders` | building and deleting each design's index |
| `readers` | look-ups with each design, correct and naive |
| `starting` | the start with each design, after a clean shutdown and after a crash |
| `density`, `behaviour`, `volume` | index.interval.bytes; truncation and starts of the engine; bytes for a day |
| `replicated`, `replication` | option 3's index between a leader and a follower; what crashes do to it |
| `arithmetic` | the documents' figures from their own assumptions |
| `study`, `presenting`, `*_tables`, `plots` | the cases, and their presentation |

The other designs' files are in separate folders, so that the engine's folder contains only what Kafka expects.
"""
