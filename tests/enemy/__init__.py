"""An enemy of the promise "never fewer rows in silence": random folders, random damage, every way to ask.

| module | has |
|---|---|
| `folders` | random data folders: laid by hand, by our broker, by our import, by real Kafka |
| `truth` | a plain reading of the `.log` files: what every answer must be |
| `damage` | what befalls a folder: flipped bits, forged entries, files that are stale, swapped, cut, renamed, deleted |
| `asking` | the ways to ask, each with its answer in one form, and what was said beside it |
"""
