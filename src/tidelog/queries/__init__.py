"""SQL over folders and clusters, by DuckDB: `tidelog.sql`, and what `tidelog sql` is made of.

| module | |
|---|---|
| `session` | a DuckDB connection whose tables are topics; `sql` |
| `statements` | which statements are executed |
| `topic_reader`, `topic_scan`, `arrow_table` | a table's scan: what DuckDB asks for, and the records it gets |
| `pruning` | what a filter proves about times, partitions and offsets |
| `catalog_tables` | the columns of the tables |
| `explained` | what EXPLAIN says about the scans |

The package is not named `sql`, so that `tidelog.sql` stays a function (docs/decisions/0006).
"""

from __future__ import annotations
