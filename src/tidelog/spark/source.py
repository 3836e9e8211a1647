"""`spark.read.format("tidelog")`: the data source, which runs in Spark's Python processes.

| step | process | action |
|---|---|---|
| `load()` | a Python process beside the driver | options are checked, relative times resolved, the schema reported |
| first action | the same | `partitions`: topics and offsets resolved, tasks planned (`tidelog.spark.tasks`) |
| each task | a worker | `read`: one task's splits, as Arrow batches |

Every object that is passed between steps is pickled. Spark keeps the planned reader with its DataFrame and reuses it, so a reader
is immutable: its bounds come from the options, and it does not support filter pushdown (docs/decisions/0004). Spark shows the
stack trace of every exception, so errors meant for users are raised again with a short stack trace. These processes do not know
the number of the session's cores; `source_class` makes a source that does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tidelog.errors import InvalidArgumentError
from tidelog.extras import imported_from
from tidelog.spark.options import STREAM_OPTIONS, ReadOptions, parse_options
from tidelog.spark.processes.loaded_modules import set_modules_aside
from tidelog.spark.processes.once import is_first
from tidelog.spark.processes.short_errors import short_errors
from tidelog.spark.storage_options import with_settings

with imported_from("spark", "PySpark"):
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        InputPartition,
    )
    from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.tasks import Task
    from tidelog.spark.typed_columns import Readers, TypedColumns

_log = logging.getLogger("tidelog.spark")


class TidelogDataSource(DataSource):
    """The format `tidelog`. `tidelog.spark.options` has its options."""

    default_parallelism: int | None = None
    """How many tasks the session runs in parallel; None if unknown."""

    storage: Mapping[str, str] = {}
    """The session's settings for object storage, under Hadoop's names. Options take precedence."""

    is_registered = False
    """Whether the source was registered with the session. Otherwise PySpark has found the source by itself, and may read rows."""

    _parsed: ReadOptions | None = None
    _readers: Readers | None = None

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    @short_errors
    def schema(self) -> StructType | str:
        """Check the options and return the schema. Spark calls this at `load()`, unless the user gives a schema, and keeps the
        source in the state after this call.
        """
        from tidelog.spark.typed_columns import newest_schemas, typed_schema

        options = self._read_options()
        self._readers = newest_schemas(options)
        schema = typed_schema(options, self._readers)
        set_modules_aside()
        return schema

    @short_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        from tidelog.spark.typed_columns import typed_columns

        options = self._options()
        return TidelogReader(options, self.default_parallelism, self.is_registered, typed_columns(schema, options, self._readers))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Return the stream reader. If streams are not supported, return a reader that raises an error with the reason when it is
        first used.
        """
        set_modules_aside()  # The stream's Python has loaded PySpark, and loads as much again now.
        from tidelog.spark.stream.refused_stream import refused_stream, too_old
        from tidelog.spark.stream.stream_options import parse_stream_options

        refusal = too_old()
        if refusal is not None:
            return refused_stream(refusal)
        from tidelog.spark.stream.stream_reader import TidelogStreamReader
        from tidelog.spark.typed_columns import typed_columns

        try:
            options = parse_stream_options(self._given())
            columns = typed_columns(schema, options.read, self._readers)
        except InvalidArgumentError as error:
            return refused_stream(error)
        if not self.is_registered:
            _warn_of_rows()
        return TidelogStreamReader(options, self.default_parallelism, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tidelog.spark.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 -- Spark's name
        from tidelog.spark.sink.writers import stream_writer

        return stream_writer(self.options, schema)

    def _given(self) -> Mapping[str, str]:
        """Return the options, merged with the session's settings. Options take precedence."""
        return with_settings(self.options, self.storage)

    def _read_options(self) -> ReadOptions:
        """Return the parsed options of the load. It is unknown here whether this is a batch or a stream, so an option is refused
        only if neither accepts it.
        """
        from tidelog.spark.stream.stream_options import parse_stream_options

        try:
            return self._options()
        except InvalidArgumentError as error:
            try:
                return parse_stream_options(self._given()).read
            except InvalidArgumentError as other:
                is_stream = any(name.lower() in map(str.lower, self.options) for name in STREAM_OPTIONS)
                raise (other if is_stream else error) from None

    def _options(self) -> ReadOptions:
        # Resolve relative times once, at load: "-3d" must mean the same in each query on the DataFrame.
        if self._parsed is None:
            from tidelog.clock import SystemClock

            self._parsed = parse_options(self._given(), SystemClock())
        return self._parsed


class TidelogReader(DataSourceReader):
    """Plans the tasks of a load, and reads a task. Immutable: overriding `pushFilters` would make results depend on earlier
    queries.
    """

    def __init__(
        self,
        options: ReadOptions,
        default_parallelism: int | None,
        is_registered: bool = True,
        columns: TypedColumns | None = None,
    ) -> None:
        from tidelog.spark.typed_columns import TypedColumns

        self.options = options
        self.columns = columns or TypedColumns(options.columns)
        self.default_parallelism = default_parallelism
        self.is_registered = is_registered

    @short_errors
    def partitions(self) -> list[InputPartition]:
        """Return a Spark partition for each task, whose value is the task's splits. If there is nothing to read, return a single
        partition without splits.
        """
        from tidelog.spark.tasks import plan_tasks

        for notice in self.options.notices:
            _log.warning("%s", notice)
        if not self.is_registered:
            _warn_of_rows()
        wanted = self.options.min_partitions or self.default_parallelism or os.cpu_count() or 1
        tasks = plan_tasks(self.options, wanted)
        set_modules_aside()
        # For an empty list Spark would make a partition without a value.
        return [InputPartition(task) for task in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition's splits as Arrow batches with exactly the schema that Spark expects."""
        from tidelog.sources.reader_resources import ReaderResources
        from tidelog.sources.scan_report import ScanReport
        from tidelog.sources.split import announced
        from tidelog.spark.reading import BATCH_ROWS, spark_rows

        task: Task = partition.value
        names, report = self.columns.names_to_read(), ScanReport()

        def rows() -> Iterator[pa.RecordBatch]:
            with ReaderResources() as reading:
                for split in announced(task, reading):
                    yield from split.read(names, batch_rows=BATCH_ROWS, report=report, reading=reading)

        where = f"{task[0]} to {task[-1]}" if len(task) > 1 else "".join(map(str, task))
        return spark_rows(rows(), self.columns, report, where)


def _warn_of_rows() -> None:
    from tidelog.spark.columnar import columns_jar

    if is_first("rows"):
        _log.warning(
            "this session reads rows instead of columns: the same results, but slower. Create it with tidelog.spark.session(),"
            " start it with spark.jars=%s, or call tidelog.spark.register(spark)",
            columns_jar(),
        )


def source_class(default_parallelism: int | None, storage: Mapping[str, str] | None = None) -> type[TidelogDataSource]:
    """Return the source class for a registered session that runs `default_parallelism` tasks in parallel.

    The class is pickled by value, because its name refers to a different object, `TidelogDataSource`.
    """
    known = {"default_parallelism": default_parallelism, "is_registered": True, "storage": dict(storage or {})}
    return type(TidelogDataSource.__name__, (TidelogDataSource,), known)
