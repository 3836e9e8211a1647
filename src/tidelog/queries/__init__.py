"""SQL over folders and clusters, executed by DuckDB: `tidelog.sql`, and the engine of `tidelog sql`.

| module | |
|---|---|
| `session` | a DuckDB connection whose tables are topics; `sql` |
| `statements` | which statements are executed |
| `topic_reader`, `topic_scan`, `arrow_table` | scans of a table: DuckDB passes columns and a filter, and gets the records |
| `pruning` | the times, partitions and offsets to which a filter limits a scan |
| `catalog_tables` | the columns of the tables |
| `quick_truncation` | `date_trunc` in UTC |
| `explained` | the lines of EXPLAIN about the scans |

The package is not named `sql`, so that `tidelog.sql` stays a function (docs/decisions/0006).
"""

from __future__ import annotations
