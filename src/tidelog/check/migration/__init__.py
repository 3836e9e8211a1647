"""A data folder in message formats v0 and v1, or mixed, rewritten in v2, into another folder; the old one is only read.

| module | owns |
|---|---|
| `up_conversion` | which batches of v2 stand for which messages of v0 and v1 |
| `segment_migration` | one segment: the new ``.log``, its indexes and time map |
| `folder_migration` | the folder: what is left to do, what is carried over, how it ends |

A segment is the unit of work: the caller (`tidelog.spark.jobs.migrate`) does them in any order, side by side.
"""
