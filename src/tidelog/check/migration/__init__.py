"""Rewrites a data folder with batches in message formats v0 and v1 to v2, in another folder. The old folder is only read.

| module | contains |
|---|---|
| `up_conversion` | the conversion of v0 and v1 messages to v2 batches |
| `segment_migration` | one segment: the new ``.log``, its indexes and time map |
| `folder_migration` | the folder: its tasks, the copied files, the final step |

A segment is the unit of work: the caller (`tidelog.spark.jobs.migrate`) processes them in any order, in parallel.
"""
