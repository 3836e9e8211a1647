"""Where PySpark finds `format("tidelog")` by itself.

PySpark looks through the installed top-level modules whose names begin with `pyspark_` for a `DefaultSource`. Nothing
else belongs here.
"""

from __future__ import annotations

from tidelog.spark.source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
