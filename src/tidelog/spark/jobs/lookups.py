"""The job `lookup`: finds the first record at or after a time, for millions of (topic, partition, timestamp) at once.

| column of the rows | |
|---|---|
| topic, partition, timestamp and all other columns of the questions | unchanged; one row per question, in any order |
| offset | the first offset at or after the time, as answered by Kafka's ListOffsets; null if there is none |
| found_timestamp | that record's timestamp: epoch ms if the question's is a number, else a Spark timestamp; null as above |

A question's timestamp is a number (epoch ms), a timestamp, a date, or text as for `tidelog find --at`, except "now" and relative
times. Fractions of a millisecond are floored. Text without a time zone is UTC, independent of the session's time zone.

Questions are sorted by topic, partition and time and cut into about equal parts, so that a large partition's questions are spread
over several tasks. A task answers its part in one walk per partition (`tidelog.sources.lookups`). Questions and answers are
transferred as Arrow. Spark keeps the rows until the session ends or `spark.catalog.clearCache()` is called.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidelog.errors import InvalidArgumentError, TidelogError
from tidelog.sources.opening import settled
from tidelog.spark.jobs.distribute import Progress, watch
from tidelog.spark.jobs.questions import check_columns, epoch_ms
from tidelog.spark.jobs.result import JobResult, Summary, logged_missing

if TYPE_CHECKING:
    from os import PathLike

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from tidelog.reader.missing.missing_offsets import MissingOffsets

__all__ = ["look_up"]

QUESTIONS_PER_TASK = 250_000
"""The approximate maximum number of questions in a task. All of a task's questions are in the worker's memory at once."""

SUMMARY_COLUMNS = ("topic", "partition", "questions", "found", "none", "seconds", "per_second")

_OFFSET, _FOUND = "offset", "found_timestamp"
# Internal columns: the time in ms, the duration of the walk through the partition, a worker's error.
_MS, _SECONDS, _FAULT = "_tidelog_ms", "_tidelog_seconds", "_tidelog_fault"

_Place = tuple[str, int]


def look_up(
    spark: SparkSession, directory: str | PathLike[str], questions: DataFrame, progress: Progress | None = None
) -> JobResult:
    """Answer `questions` from the data folder `directory`. The module's docstring describes the columns.

    The summary has a line for each partition, with the workers' seconds. A last line without a topic has the total, with the
    elapsed seconds.

    Raises InvalidArgumentError for columns that are missing, have a wrong type or a reserved name, and for a question
    whose topic or partition is null, or whose time is null or before 1970; UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError, CorruptDataError, SegmentChangedError, NotFoundError.
    """
    from pyspark.sql import functions as f

    began = time.perf_counter()
    folder = settled(directory)
    time_type = _check_columns(questions)
    asked = questions.withColumn(_MS, epoch_ms(f.col("timestamp"), time_type))
    with watch(spark, "look-ups by time", progress):
        total = _check_questions(folder, asked)
        tasks = max(spark.sparkContext.defaultParallelism, -(-total // QUESTIONS_PER_TASK))
        answered = _answered(asked, tasks, folder).persist()
        try:
            by_place = answered.groupBy("topic", "partition")
            found = by_place.agg(f.count("*"), f.count(_OFFSET), f.sum(_SECONDS), f.max(_FAULT), f.max(_OFFSET)).collect()
            for *_, fault, _ in found:
                if fault is not None:
                    error: TidelogError = pickle.loads(fault)
                    raise error
            found.sort()
        except BaseException:
            answered.unpersist()
            raise
    lines = [(topic, partition, count, hits, count - hits, seconds) for topic, partition, count, hits, seconds, *_ in found]
    # Missing records after the last answer cannot change an answer.
    lasts = {(topic, partition): last if count == hits else None for topic, partition, count, hits, _, _, last in found}
    missing = logged_missing(_missing(folder, lasts))
    hits = sum(line[3] for line in lines)
    lines.append((None, None, total, hits, total - hits, time.perf_counter() - began))
    shown = [(*line[:-1], round(line[-1], 3), round(line[2] / line[-1]) if line[-1] else None) for line in lines]
    rows = answered.withColumn(_FOUND, _as_asked(f.col(_FOUND), time_type)).drop(_MS, _SECONDS, _FAULT)
    return JobResult(rows, Summary(SUMMARY_COLUMNS, tuple(shown)), missing=missing)


def _missing(directory: str, ends: dict[_Place, int | None]) -> Iterator[MissingOffsets]:
    """Yield the missing records of each partition up to its offset in `ends`. If that is None, yield all, including those
    missing at the log's end.
    """
    from tidelog.reader.tiered.tiered_log_dir import open_log_dir

    log_dir = open_log_dir(directory)
    for (topic, partition), end in ends.items():
        with log_dir.log(topic, partition) as log:
            yield from log.missing(0, end)


def _check_columns(questions: DataFrame) -> DataType:
    """Return the type of the timestamp column. Raise InvalidArgumentError if columns cannot be used."""
    from pyspark.sql import types as t

    kinds = {field.name.lower(): field.dataType for field in questions.schema.fields}
    check_columns(questions.columns)
    for name, expected, what in (
        ("topic", (t.StringType,), "text"),
        ("partition", (t.ByteType, t.ShortType, t.IntegerType, t.LongType), "an integer"),
        (
            "timestamp",
            (t.IntegerType, t.LongType, t.TimestampType, t.TimestampNTZType, t.DateType, t.StringType),
            "a timestamp, a date, epoch milliseconds or text",
        ),
    ):
        if not isinstance(kinds[name], expected):
            raise InvalidArgumentError(
                f"column {name!r} of the lookup rows has the wrong type", found=kinds[name].simpleString(), expected=what
            )
    for name in (_OFFSET, _FOUND, _MS, _SECONDS, _FAULT):
        if name in kinds:
            raise InvalidArgumentError(
                f"the lookup rows already have a column {name!r}, which is the name of a result column: rename it"
            )
    return kinds["timestamp"]


def _as_asked(found_ms: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    return found_ms if isinstance(kind, t.IntegerType | t.LongType) else f.timestamp_millis(found_ms)


def _check_questions(directory: str, asked: DataFrame) -> int:
    """Return the number of questions.

    Raises UnknownTopicOrPartitionError for the first unknown partition, InvalidArgumentError for an invalid question.
    """
    from pyspark.sql import functions as f

    from tidelog.reader.tiered.tiered_log_dir import open_log_dir

    is_bad = f.col(_MS).isNull() | (f.col(_MS) < 0)
    # Convert to text, so that any type can be shown. NULL stays NULL.
    example = f.coalesce(f.col("timestamp").cast("string"), f.lit("null"))
    by_place = asked.groupBy("topic", "partition")
    places = by_place.agg(f.count("*"), f.count_if(is_bad), f.max(f.when(is_bad, example))).collect()
    nowhere = sum(place[2] for place in places if place[0] is None or place[1] is None)
    if nowhere:
        raise InvalidArgumentError("some lookup rows have a null topic or partition", found=nowhere)
    places.sort()
    log_dir = open_log_dir(directory)
    for topic, partition, *_ in places:
        log_dir.directory(topic, partition)
    bad = [place for place in places if place[3]]
    if bad:
        topic, partition, _, _, shown = bad[0]
        raise InvalidArgumentError(
            "some lookup rows have a timestamp that is null or before 1970",
            found=f"{sum(place[3] for place in bad)}, such as {shown} for {topic}-{partition}",
            expected="a time such as 2013-07-10T09:30:00Z, or epoch milliseconds",
        )
    return sum(place[2] for place in places)


def _answered(asked: DataFrame, tasks: int, directory: str) -> DataFrame:
    """Return the rows of `asked` with the answers (times in ms) and the internal columns."""
    from pyspark.sql.types import BinaryType, DoubleType, LongType, StructField, StructType

    added = [(_OFFSET, LongType()), (_FOUND, LongType()), (_SECONDS, DoubleType()), (_FAULT, BinaryType())]
    fields = [StructField(field.name, field.dataType) for field in asked.schema.fields]
    schema = StructType([*fields, *(StructField(name, kind) for name, kind in added)])

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _answer(list(batches), directory)

    return asked.repartitionByRange(tasks, "topic", "partition", _MS).mapInArrow(answer, schema)


def _answer(batches: list[pa.RecordBatch], directory: str) -> Iterator[pa.RecordBatch]:
    """Answer a task's questions. A TidelogError is returned as a row."""
    import pyarrow as pa

    if not batches:
        return
    table = pa.Table.from_batches(batches)
    del batches[:]
    try:
        added = _answers(table, directory)
    except TidelogError as error:
        table = pa.Table.from_arrays([pa.nulls(1, kind) for kind in table.schema.types], names=table.schema.names)
        fault = pa.array([pickle.dumps(error)], pa.binary())
        added = [pa.nulls(1, pa.int64()), pa.nulls(1, pa.int64()), pa.nulls(1, pa.float64()), fault]
    for name, column in zip((_OFFSET, _FOUND, _SECONDS, _FAULT), added, strict=True):
        table = table.append_column(name, column)
    yield from table.to_batches()


def _answers(table: pa.Table, directory: str) -> list[pa.Array]:
    """Return the answers to a task's questions, one array for each column of the result."""
    import numpy as np
    import pyarrow as pa

    from tidelog.reader.tiered.tiered_log_dir import open_log_dir
    from tidelog.sources.lookups import NONE, search_offsets

    log_dir = open_log_dir(directory)
    columns = {name.lower(): table.column(name) for name in table.schema.names}
    topics = columns["topic"].combine_chunks().dictionary_encode()
    partitions = columns["partition"].to_numpy()
    times = columns[_MS].to_numpy()
    topic_numbers = topics.indices.to_numpy()
    order = np.lexsort((partitions, topic_numbers))
    is_new = np.ones(len(order), bool)
    is_new[1:] = (np.diff(partitions[order]) != 0) | (np.diff(topic_numbers[order]) != 0)
    offsets = np.empty(len(order), np.int64)
    found = np.empty(len(order), np.int64)
    seconds = np.zeros(len(order))
    for rows in np.split(order, np.flatnonzero(is_new)[1:]):
        began = time.perf_counter()
        topic, partition = topics.dictionary[topic_numbers[rows[0]]].as_py(), int(partitions[rows[0]])
        with log_dir.log(topic, partition) as log:
            answers = search_offsets(log, times[rows])
        offsets[rows], found[rows] = answers.offsets, answers.timestamps
        seconds[rows[0]] = time.perf_counter() - began
    none = offsets == NONE
    answered: list[Any] = [pa.array(offsets, mask=none), pa.array(found, mask=none), pa.array(seconds)]
    return [*answered, pa.nulls(len(order), pa.binary())]
