"""Registers `format("tidelog")`: PySpark discovers this package by its name.

PySpark looks through the installed top-level modules whose names begin with `pyspark_` for a `DefaultSource`. This package must
contain nothing else.
"""

from __future__ import annotations

from tidelog.spark.source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
