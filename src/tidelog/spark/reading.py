"""Converts the rows of a task for Spark, in batches and streams."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa

from tidelog.errors import TidelogError
from tidelog.sources.arrow import coalesce
from tidelog.sources.scan_report import ScanReport
from tidelog.spark.columns import arrow_schema, spark_batch
from tidelog.spark.processes.kept_memory import keep_memory
from tidelog.spark.processes.loaded_modules import set_modules_aside
from tidelog.spark.typed_columns import TypedColumns

BATCH_ROWS = 65_536
"""The number of rows in an Arrow batch. It is large enough to make the cost per batch small, and small enough to need little
memory.
"""

_log = logging.getLogger("tidelog.spark")


def spark_rows(
    rows: Iterator[pa.RecordBatch], columns: TypedColumns, report: ScanReport, where: object
) -> Iterator[pa.RecordBatch]:
    """Convert a scan's batches, with the columns `columns.names_to_read`, to the schema that Spark expects, and yield them. Then
    log the notices of `report`; `where` names what was read.
    """
    keep_memory()
    schema = arrow_schema(columns.columns, columns.types)
    try:
        for batch in coalesce(columns.decoded(rows, where), BATCH_ROWS):
            yield spark_batch(batch, schema)
    except TidelogError as error:
        raise error.with_traceback(None) from None  # This does the same as `short_errors`, which does not support generators.
    # Missing records were reported for the whole log when it was planned.
    report.above_high_watermark = 0
    for notice in report.notices():
        _log.warning("%s: %s", where, notice)
    set_modules_aside()
