"""Folders and brokers as sources: exact time or offset ranges of one or many partitions, planned, split, read as Arrow.

`tidelog.scan` is the front door (`stream`). Behind it:

| module | |
|---|---|
| `opening` | the table of kinds, and which kind an address is of: nowhere else is that asked |
| `source`, `offset_source` | what every kind can do: topics, ends, find, plan, splits, groups |
| `split`, `reading` | a piece of a log that is read anywhere, and what its reader keeps |
| `plan`, `scan_plan` | what is asked, and the splits that answer it |
| `reader`, `arrow`, `schema`, `chunks` | from a split's batches to Arrow batches |
| `files/`, `brokers/` | the two kinds |

The package is not called `scan`, so that `tidelog.scan` stays a function (docs/decisions/0006).
"""
