"""The objects that Spark calls to write: in each task, and on the driver when all tasks are done.

| | tasks | the driver's commit |
|---|---|---|
| exactly-once, a stream | build and spool batches | a transaction or rename that includes the query's epoch; skips replays |
| exactly-once, a batch write | the same | the same, without an epoch |
| the same, to brokers, for tasks of over 1 MiB | send batches in a transaction that stays open | also ends these transactions |
| at-least-once | send batches themselves, as the connector does | nothing |

Tasks get the query's id from Spark's local properties, which do not depend on the checkpoint's location, and report the id to the
driver. Every object is pickled. Spark creates a writer for each micro-batch, and a second writer for its commit.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, cast

from tidelog.errors import InvalidArgumentError
from tidelog.extras import imported_from
from tidelog.spark.processes.short_errors import short_errors
from tidelog.spark.sink.sink_options import SinkOptions

with imported_from("spark", "PySpark"):
    from pyspark import TaskContext
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tidelog.model import TopicPartition
    from tidelog.spark.sink.spool import SpooledBatches
    from tidelog.spark.sink.task_transactions import TaskTransaction

QUERY_ID = "sql.streaming.queryId"
"""Spark's local property that has the query's id, which comes from the query's checkpoint."""

BATCH_ID = "streaming.sql.batchId"
"""Spark's local property that has the number of the micro-batch."""

_log = logging.getLogger("tidelog.spark")


@short_errors
def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> TidelogArrowWriter:
    """Return the writer for a batch write. Raises InvalidArgumentError for invalid options or columns, and if `overwrite`
    is set.
    """
    options = _checked(given, schema, streaming=False)
    if overwrite:
        raise InvalidArgumentError("a log can only be appended to: write with mode append", path=options.place)
    return TidelogArrowWriter(options)


@short_errors
def stream_writer(given: Mapping[str, str], schema: StructType) -> TidelogStreamWriter:
    """Return the writer for a stream's micro-batch. In output mode complete, each batch writes the whole result again, as in the
    connector.

    Raises InvalidArgumentError for invalid options or columns.
    """
    return TidelogStreamWriter(_checked(given, schema, streaming=True))


def _checked(given: Mapping[str, str], schema: StructType, *, streaming: bool) -> SinkOptions:
    from tidelog.spark.sink.column_rules import check_columns
    from tidelog.spark.sink.sink_options import parse_sink_options

    options = parse_sink_options(given, streaming=streaming)
    for notice in options.notices:
        _log.warning("%s", notice)
    check_columns([(field.name, field.dataType.simpleString()) for field in schema], options)
    return options


@dataclass(frozen=True, slots=True)
class TaskWrote(WriterCommitMessage):
    """A task's report to the driver."""

    spooled: SpooledBatches | None
    """The task's batches; None if the task has sent its rows itself."""
    query_id: str | None
    opened: TaskTransaction | None = None
    """The transaction in which the task has sent its rows, if it has."""
    is_replay: bool = False
    """Whether the task found that the micro-batch has been written already, and therefore sent nothing."""


class TidelogArrowWriter(DataSourceArrowWriter):
    """The writer that Spark calls for a batch write."""

    def __init__(self, options: SinkOptions) -> None:
        # Created once, beside the driver, so that tasks and commit get the same id.
        self.options = replace(options, transactional_id=options.transactional_id or f"tidelog-write-{uuid.uuid4()}")

    @short_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self.options, iterator, None, None)

    @short_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self.options, messages, None)

    @short_errors
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self.options, messages, None)


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    """The writer that Spark calls for one micro-batch of a stream."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    @short_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(QUERY_ID)
        batch_id = None if context is None else context.getLocalProperty(BATCH_ID)
        return _write(self.options.for_query(query_id), iterator, query_id, None if batch_id is None else int(batch_id))

    @short_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        from tidelog.spark.sink.spool import sweep

        options = self.options.for_query(next((message.query_id for message in _ours(messages)), None))
        _commit(options, messages, batchId)
        if options.delivery == "exactly-once" and options.transactional_id is not None:
            sweep(options.spool_dir, options.transactional_id, batchId)

    @short_errors
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        _abort(self.options.for_query(next((message.query_id for message in _ours(messages)), None)), messages, batchId)


def _write(options: SinkOptions, rows: Iterator[pa.RecordBatch], query_id: str | None, batch_id: int | None) -> TaskWrote:
    from tidelog.spark.sink.spool import INLINE_BYTES, Spool

    with _partition_counts(options) as partitions:
        batches = _batches(options, rows, partitions)
        if options.delivery == "at-least-once":
            from tidelog.spark.sink.broker_target import send_from_task

            send_from_task(options, batches)
            return TaskWrote(None, query_id)
        if options.path is None and not options.is_atomic and options.transactional_id is not None:
            first, size_bytes = [], 0
            for key, batch in batches:
                first.append((key, batch))
                size_bytes += len(batch)
                if size_bytes > INLINE_BYTES:
                    return _sent(options, chain(first, batches), query_id, batch_id)
            batches = iter(first)
        with Spool(options.spool_dir, options.transactional_id or "", batch_id) as spool:
            for key, batch in batches:
                spool.add(key, batch)
            return TaskWrote(spool.finish(), query_id)


def _sent(
    options: SinkOptions, batches: Iterator[tuple[TopicPartition, bytearray]], query_id: str | None, batch_id: int | None
) -> TaskWrote:
    from tidelog.spark.sink.broker_target import send_in_transaction

    context = TaskContext.get()
    assert context is not None
    opened = send_in_transaction(options, batches, f"{context.partitionId()}-{context.attemptNumber()}", batch_id)
    return TaskWrote(None, query_id, opened, is_replay=opened is None)


def _batches(
    options: SinkOptions, rows: Iterator[pa.RecordBatch], partitions: Callable[[str], int]
) -> Iterator[tuple[TopicPartition, bytearray]]:
    from tidelog.spark.sink.row_batches import RowBatches

    made: RowBatches | None = None
    for batch in rows:
        if made is None:
            made = RowBatches(batch.schema, options, partitions)
        yield from made.add(batch)
    if made is not None:
        yield from made.finish()


def _partition_counts(options: SinkOptions) -> AbstractContextManager[Callable[[str], int]]:
    if options.path is not None:
        from tidelog.spark.sink import folder_target

        return folder_target.partition_counts(options)
    from tidelog.spark.sink import broker_target

    return broker_target.partition_counts(options)


def _commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> None:
    """Commit the tasks' batches, and remove the spool files. Nothing is committed for a batch without rows, because it need not
    be recognized as a replay later.
    """
    spooled, opened = _spooled(messages), _opened(messages)
    try:
        if not opened and not any(one.record_count for one in spooled) and not any(one.is_replay for one in _ours(messages)):
            return
        if batch_id is not None and options.query_id is None:
            raise InvalidArgumentError(
                f"Spark did not pass the query's id ({QUERY_ID}) to its tasks; to write without it, "
                "set deliveryGuarantee=at-least-once",
                path=options.place,
            )
        if options.path is not None:
            from tidelog.spark.sink.folder_target import commit_to_folder

            commit_to_folder(options, spooled, batch_id)
        else:
            from tidelog.spark.sink.broker_target import commit_to_broker

            commit_to_broker(options, [one for one in spooled if one.record_count], batch_id, opened=opened)
    finally:
        _discard(spooled)


def _abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> None:
    _discard(_spooled(messages))
    if opened := _opened(messages):
        from tidelog.spark.sink.broker_target import abort_at_broker

        abort_at_broker(options, batch_id, opened)


def _ours(messages: Sequence[WriterCommitMessage | None]) -> list[TaskWrote]:
    return [cast("TaskWrote", message) for message in messages if message is not None]


def _spooled(messages: Sequence[WriterCommitMessage | None]) -> list[SpooledBatches]:
    return [message.spooled for message in _ours(messages) if message.spooled is not None]


def _opened(messages: Sequence[WriterCommitMessage | None]) -> list[TaskTransaction]:
    return [message.opened for message in _ours(messages) if message.opened is not None]


def _discard(spooled: Sequence[SpooledBatches]) -> None:
    for one in spooled:
        one.delete()
