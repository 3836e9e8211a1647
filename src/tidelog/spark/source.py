"""`spark.read.format("tidelog")`: the data source that Spark's Python workers run.

| step | where | what happens here |
|---|---|---|
| `load()` | a Python process beside the driver | options are checked, relative times resolved, the schema told |
| first action | the same | `partitions`: topics and offsets resolved, splits planned |
| each task | a worker | `read`: one split, as Arrow batches |

Every object that goes from one step to the next is pickled. Spark keeps the planned reader with its DataFrame and uses it
again, so a reader never changes: its bounds are those of the options, and it takes no part in filter pushdown
(docs/decisions/0004). Spark shows the stack of whatever is raised; an error that is meant for people is therefore raised
afresh at the edge, where its stack is short. Spark says nothing about the session's cores in these processes;
`source_class` makes a source that knows.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.errors import InvalidArgumentError, TidelogError
from tidelog.spark.options import ReadOptions, parse_options

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.log.log_dir import LogDir
    from tidelog.scanning.split import Split
    from tidelog.spark.bounds import OffsetRange

SPLIT_BYTES = 32 * 1024 * 1024
"""Largest stretch of a segment that one task reads, unless a single batch is larger."""

BATCH_ROWS = 65_536
"""Rows of an Arrow batch: far above the cost of handing one over, far below what hurts in memory."""

_log = logging.getLogger("tidelog.spark")


class TidelogDataSource(DataSource):
    """The format `tidelog`. Its options are `tidelog.spark.options`."""

    default_parallelism: int | None = None
    """How many tasks the session runs at once; None where nobody said."""

    _parsed: ReadOptions | None = None

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        """Check the options and return the schema. Spark calls it at `load()` and keeps the source as it is then."""
        from tidelog.spark.columns import spark_schema

        try:
            return spark_schema(self._options().columns)
        except TidelogError as error:
            raise error.with_traceback(None) from None

    def reader(self, schema: StructType) -> DataSourceReader:
        from tidelog.spark.columns import spark_schema

        options = self._options()
        fixed = spark_schema(options.columns)
        if [(field.name, field.dataType) for field in schema] != [(field.name, field.dataType) for field in fixed]:
            raise InvalidArgumentError(
                "format tidelog has a fixed schema; choose columns with the option columns",
                found=schema.simpleString(),
                expected=fixed.simpleString(),
            )
        return TidelogReader(options, self.default_parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        raise InvalidArgumentError("format tidelog reads batches, not streams: use spark.read")

    def _options(self) -> ReadOptions:
        # Once, at load: "-3d" must mean the same in each query on the DataFrame.
        if self._parsed is None:
            from tidelog.clock import SystemClock

            self._parsed = parse_options(self.options, SystemClock())
        return self._parsed


class TidelogReader(DataSourceReader):
    """Plans splits, and reads one. Immutable; overriding `pushFilters` would make answers depend on earlier queries."""

    def __init__(self, options: ReadOptions, default_parallelism: int | None) -> None:
        self.options = options
        self.default_parallelism = default_parallelism

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each split; a single one without a value where there is nothing to read."""
        try:
            return [InputPartition(split) for split in self._splits()] or [InputPartition(None)]
        except TidelogError as error:
            raise error.with_traceback(None) from None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a split's rows as Arrow batches with exactly the schema that Spark expects."""
        from tidelog.scanning.reader import read_split
        from tidelog.scanning.report import ScanReport
        from tidelog.spark.columns import arrow_schema, scan_columns, spark_batch

        split: Split | None = partition.value
        if split is None:
            return
        schema, report = arrow_schema(self.options.columns), ScanReport()
        try:
            for batch in read_split(split, scan_columns(self.options.columns), batch_rows=BATCH_ROWS, report=report):
                yield spark_batch(batch, schema)
        except TidelogError as error:
            raise error.with_traceback(None) from None
        for notice in report.notices():
            _log.warning("%s: %s", split, notice)

    def _splits(self) -> list[Split]:
        from tidelog.log.log_dir import LogDir
        from tidelog.spark.bounds import resolve_ranges, select_partitions

        for notice in self.options.notices:
            _log.warning("%s", notice)
        log_dir = LogDir(self.options.path)
        partitions = select_partitions(self.options, log_dir)
        by_topic: dict[str, dict[int, OffsetRange]] = defaultdict(dict)
        for (topic, partition), offsets in resolve_ranges(self.options, log_dir, partitions).items():
            by_topic[topic][partition] = offsets
        return self._plan(log_dir, by_topic)

    def _plan(self, log_dir: LogDir, by_topic: dict[str, dict[int, OffsetRange]]) -> list[Split]:
        """Plan each topic so that all of them together give the splits that are wanted."""
        wanted = self.options.min_partitions or self.default_parallelism or os.cpu_count() or 1
        if len(by_topic) == 1:
            [(topic, offsets)] = by_topic.items()
            return self._plan_topic(log_dir, topic, offsets, wanted)
        planned = {topic: self._plan_topic(log_dir, topic, offsets, 1) for topic, offsets in by_topic.items()}
        sizes = {topic: sum(split.size_bytes for split in splits) for topic, splits in planned.items()}
        if sum(map(len, planned.values())) < wanted:
            # Shares by size, rounded up: a topic of half the bytes gets half the splits.
            total = sum(sizes.values()) or 1
            for topic, offsets in by_topic.items():
                share = -(-wanted * sizes[topic] // total)
                if share > len(planned[topic]):
                    planned[topic] = self._plan_topic(log_dir, topic, offsets, share)
        return [split for splits in planned.values() for split in splits]

    def _plan_topic(self, log_dir: LogDir, topic: str, offsets: dict[int, OffsetRange], min_splits: int) -> list[Split]:
        from tidelog.scanning.plan import plan

        planned = plan(
            log_dir,
            topic,
            start=self.options.start_ms,
            end=self.options.end_ms,
            partitions=list(offsets),
            isolation=self.options.isolation,
            offsets=offsets,
            split_bytes=SPLIT_BYTES,
            min_splits=min_splits,
        )
        for note in planned.notes:
            _log.warning("%s", note)
        return list(planned.splits)


def source_class(default_parallelism: int | None) -> type[TidelogDataSource]:
    """Return the source for a session that runs that many tasks at once.

    The class travels to the workers by value: its name leads to `TidelogDataSource`, which is another object.
    """
    if default_parallelism is None:
        return TidelogDataSource
    return type(TidelogDataSource.__name__, (TidelogDataSource,), {"default_parallelism": default_parallelism})
