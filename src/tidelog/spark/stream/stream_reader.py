"""The stream reader that Spark calls.

| Spark calls | when | where |
|---|---|---|
| `prepareForTriggerAvailableNow` | once, with `availableNow` | a process beside the driver, which lives as long as the query |
| `initialOffset` | for a query without a checkpoint; again if its first batch was not finished | the same process |
| `latestOffset` | before a batch, for its end | the same process |
| `partitions` | for a batch's tasks; after a crash without `latestOffset`, from the checkpoint | the same process |
| `commit`, `reportLatestOffset` | after a batch | the same process |
| `read` | for each task | a worker |

The process keeps connections or opened logs (the `Source`), the log time reached (`admission.TimeLimit`), and the known topics.
It can restart without this state, because the checkpoint's offsets suffice.

If a query starts at the latest records, its first batch is empty on purpose: it only writes the start to the checkpoint.
Otherwise, after a crash in the first batch, the start would be unknown, and a restart would begin later. With `availableNow` the
empty batch is also the last batch, which is correct because nothing follows the latest records.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.clock import SteadyClock, SystemClock
from tidelog.errors import UnknownTopicOrPartitionError
from tidelog.extras import imported_from
from tidelog.model import EARLIEST, LATEST, TopicPartition
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.reader.salvage.salvage import LeftOut
from tidelog.sources.bounds import HIGH_WATERMARK
from tidelog.sources.opening import open_source
from tidelog.sources.source import Ends, Source
from tidelog.spark.bounds import existing_topics, missing_partitions, report_missing, resolve_ranges, select_partitions
from tidelog.spark.processes.short_errors import short_errors
from tidelog.spark.stream.admission import WINDOW_OFFSETS, TimeLimit, TriggerDelay, Window, share, within_bytes
from tidelog.spark.stream.batch_ranges import Reach, batch_ranges, ends, loss, reaches
from tidelog.spark.stream.offsets import Document, from_json, to_json
from tidelog.spark.stream.stream_options import StreamOptions
from tidelog.spark.stream.stream_tasks import batch_splits, plan_batch, read_task

with imported_from("spark", "PySpark"):
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.typed_columns import TypedColumns

NO_LIMIT = 2**62
"""The limit that is returned to Spark if no limit in offsets is set. It is not "all available", because then `once` would ignore
all limits.
"""

SAMPLED_SHARE = 128
"""The uncompressed size of a backlog is not estimated if its size in the log is below this share of maxBytesPerTrigger."""

_log = logging.getLogger("tidelog.spark")


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query. It is pickled for the workers before anything is opened, and `read` does not use this object's
    open logs or connections.
    """

    def __init__(self, options: StreamOptions, default_parallelism: int | None, columns: TypedColumns | None = None) -> None:
        from tidelog.spark.typed_columns import TypedColumns

        self.options = options
        self.columns = columns or TypedColumns(options.read.columns)
        self.default_parallelism = default_parallelism
        self._source: Source | None = None
        self._target: dict[TopicPartition, Ends] | None = None
        self._seen: dict[TopicPartition, Ends] = {}
        self._is_fresh_look = self._has_looked = False
        self._ids: dict[str, uuid.UUID] = {}
        self._reported: set[MissingOffsets] = set()
        self._reported_damage: set[LeftOut] = set()
        self._initial: Document = {}
        self._is_first = False
        self._is_anchored = True
        self._turn = 0
        self._time = None if options.max_time_ms is None else TimeLimit(options.max_time_ms)
        self._delay = TriggerDelay(options.min_offsets, options.max_delay_ms)
        self._clock = SystemClock()
        self._steady = SteadyClock()

    # --- Called by Spark

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name, as those below
        return ReadMaxRows(self.options.max_offsets or NO_LIMIT)

    @short_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._look()
        later = {key: span for key, span in self._target.items() if span.end_offset < span.log_end_offset}
        if later and self.options.read.reads_files:
            key, span = next(iter(later.items()))
            _log.warning(
                "%d partitions have records that cannot be read yet, e.g. %s-%d offsets [%d, %d): past the "
                "high-watermark checkpoint, or in open transactions",
                len(later),
                *key,
                span.end_offset,
                span.log_end_offset,
            )

    @short_errors
    def initialOffset(self) -> Document:  # noqa: N802
        """Return the position at which a new query starts.

        Raises what `select_partitions` and `resolve_ranges` raise.
        """
        for notice in self.options.read.notices:
            _log.warning("%s", notice)
        starts = self._starts()
        self._initial = to_json(starts)
        self._is_first = True
        return self._initial

    @short_errors
    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:  # noqa: N802
        """Return the end of the batch that begins at `start`. Return `start` itself if there is nothing, or too little, to read.

        Raises OffsetOutOfRangeError for lost records, unless failOnDataLoss is false.
        """
        is_first, self._is_first = self._is_first, False
        if is_first and start == self._initial and not self._is_anchored and self._target is None:
            return start
        positions = from_json(start)
        spans = self._look(positions) if self._target is None else self._target
        reached, losses = reaches(positions, spans, self._recreated(positions, spans))
        self._report_losses(losses)
        taken = self._admit({key: reach for key, reach in reached.items() if reach.offsets}, limit)
        self._remember_ids(reached, taken)
        return to_json(ends(reached, taken))

    @short_errors
    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        """Return the tasks of the batch between two positions. The list is empty if the batch is empty."""
        options = self.options.read
        if start == end:
            return []
        first, behind = from_json(start), from_json(end)
        if not self._is_fresh_look:
            self._look(first or behind)
        self._is_fresh_look = False
        ranges, losses = batch_ranges(first, behind, self._seen, is_first=self._is_first)
        self._report_losses(losses)
        self._report_missing(self._opened().missing_in(ranges))
        tasks = plan_batch(
            partial(batch_splits, self._opened(), options, reported=self._reported_damage),
            ranges,
            wanted=options.min_partitions or self.default_parallelism or os.cpu_count() or 1,
            is_wanted_by_user=options.min_partitions is not None,
            max_task_offsets=self.options.max_task_offsets,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a task as Arrow batches with exactly the schema that Spark expects."""
        from tidelog.sources.scan_report import ScanReport
        from tidelog.spark.reading import BATCH_ROWS, spark_rows

        report = ScanReport()
        rows = read_task(partition.value, self.columns.names_to_read(), BATCH_ROWS, report)
        return spark_rows(rows, self.columns, report, partition.value.splits[0])

    def reportLatestOffset(self) -> Document | None:  # noqa: N802
        """Return the log ends that were known when the last batch was planned. Spark computes the lag from these and the batch's
        end.
        """
        return to_json({key: span.end_offset for key, span in self._seen.items()}) if self._seen else None

    def commit(self, end: Document) -> None:
        """Do nothing: the position is stored only in the checkpoint."""

    def stop(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    # --- The present state of the log

    def _opened(self) -> Source:
        if self._source is None:
            self._source = open_source(self.options.read.source, skip_damaged=self.options.read.skip_damaged)
        return self._source

    def _topics(self) -> dict[str, list[int]]:
        source = self._opened()
        source.refresh()
        return existing_topics(self.options.read, source)

    def _look(self, before: Collection[TopicPartition] = ()) -> dict[TopicPartition, Ends]:
        """Return the current bounds of the partitions to read. `before` has the partitions that the query has read so far."""
        source, options, existing = self._opened(), self.options.read, self._topics()
        try:
            keys = select_partitions(options, source, existing, warns=not self._has_looked)
        except UnknownTopicOrPartitionError:
            # If losses are allowed, the query continues when its topics are deleted.
            if options.fail_on_data_loss or not before:
                raise
            keys = [key for key in self._named(existing) if key[1] in existing.get(key[0], ())]
        self._seen = source.ends(keys, options.isolation, HIGH_WATERMARK)
        self._report_missing([*missing_partitions(options, source), *source.missing_after(self._seen)])
        self._is_fresh_look = self._has_looked = True
        return self._seen

    def _named(self, existing: Mapping[str, list[int]]) -> list[TopicPartition]:
        options = self.options.read
        if options.assigned is not None:
            return sorted(options.assigned)
        return sorted(TopicPartition(topic, number) for topic in options.topics or () for number in existing.get(topic, ()))

    def _recreated(self, positions: dict[TopicPartition, int], spans: dict[TopicPartition, Ends]) -> set[TopicPartition]:
        """Return the partitions whose topic has been replaced by a new topic of the same name."""
        now = self._opened().topic_ids(spans)
        return {key for key in positions if key.topic in now and self._ids.get(key.topic, now[key.topic]) != now[key.topic]}

    def _remember_ids(self, reached: dict[TopicPartition, Reach], taken: dict[TopicPartition, int]) -> None:
        late = {key.topic for key, reach in reached.items() if reach.offsets and not taken.get(key)}
        now = self._opened().topic_ids(reached)
        self._ids.update((topic, topic_id) for topic, topic_id in now.items() if topic not in late or topic not in self._ids)

    def _report_missing(self, missing: list[MissingOffsets]) -> None:
        """Raise an error if records are missing from the folder. With failOnDataLoss=false, log a warning once instead."""
        report_missing(self.options.read, [one for one in missing if one not in self._reported])
        self._reported.update(missing)

    def _report_losses(self, losses: list[str]) -> None:
        if not losses:
            return
        if self.options.read.fail_on_data_loss:
            raise loss(losses, self.options.read.source)
        for text in losses:
            _log.warning("records were lost before the stream read them: %s", text)

    # --- Start, and size of batches

    def _starts(self) -> dict[TopicPartition, int]:
        options = self.options.read
        spans = self._look() if self._target is None else self._target
        source = self._opened()
        if options.starting.option == "startTime":
            assert options.start_ms is not None
            bounds = source.bounds(spans, options.start_ms, options.isolation)
            # The search may find records that read_committed does not return yet, so limit the start to the readable end.
            starts = {key: min(one.start_offset, one.end_offset) for key, one in bounds.items()}
        else:
            resolved = resolve_ranges(options, source, list(spans), HIGH_WATERMARK)
            starts = {
                key: first if (first := resolved[key][0]) is not None else span.log_start_offset for key, span in spans.items()
            }
        bound = options.starting
        # A later search would give the same result; records before startTime are filtered out anyway.
        self._is_anchored = bound.option == "startTime" or (not bound.by_time and all(bound.of(key) != LATEST for key in spans))
        # Records missing before a start offset are not a loss. For a start time, the look-up has reported missing records.
        asked = {key for key in spans if bound.option == "startTime" or (not bound.by_time and bound.of(key) == EARLIEST)}
        self._report_missing(source.missing_in({key: (0, starts[key]) for key in asked}))
        if self._target is not None:
            # At the start of a query, nothing is read and nothing is lost.
            starts = {key: min(start, self._target[key].end_offset) for key, start in starts.items()}
        return starts

    def _admit(self, reached: dict[TopicPartition, Reach], limit: ReadLimit) -> dict[TopicPartition, int]:
        """Return how many offsets of each partition the next batch takes."""
        available = {key: reach.offsets for key, reach in reached.items()}
        if not available or isinstance(limit, ReadAllAvailable):
            return available
        # A query that ends with the available records has nothing to wait for.
        if self._target is None and self._delay.waits(sum(available.values()), self._steady.now_ms()):
            return {}
        if self._time is not None:
            available = self._within_time(reached, self._time)
        limits = [self.options.max_offsets, self._offsets_within_bytes(reached, available)]
        most = min((limit for limit in limits if limit is not None), default=None)
        if most is not None:
            shares = share(available, most, self._turn)
            self._turn += 1
            if self._time is not None and shares != available:
                self._time.cut()
            return shares
        return available

    def _offsets_within_bytes(self, reached: dict[TopicPartition, Reach], available: dict[TopicPartition, int]) -> int | None:
        """Return how many offsets fit into a batch's limit of uncompressed bytes. Return None if all available offsets fit."""
        limit_bytes = self.options.max_bytes
        if limit_bytes is None:
            return None
        packed = self._opened().bytes_each(available)
        if within_bytes(available, packed, limit_bytes // SAMPLED_SHARE) is None:
            return None
        unpacked = {key: max(packed.get(key, 0.0), self._unpacked_bytes_each(key, reached[key])) for key in available}
        return within_bytes(available, unpacked, limit_bytes)

    def _unpacked_bytes_each(self, key: TopicPartition, reach: Reach) -> float:
        """Return the approximate size in memory of one row of the next records."""
        behind = min(reach.end_offset, reach.start_offset + WINDOW_OFFSETS)
        rows = size_bytes = 0
        for batch in self._sample(key, reach.start_offset, behind, ("key", "value", "headers")):
            rows += batch.num_rows
            size_bytes += batch.nbytes
        return size_bytes / max(1, rows)

    def _sample(self, key: TopicPartition, first: int, behind: int, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        source = self._opened()
        for split in batch_splits(source, self.options.read, {key: (first, behind)}, self._reported_damage):
            yield from split.read(columns, reading=source.reading)

    def _within_time(self, reached: dict[TopicPartition, Reach], time_limit: TimeLimit) -> dict[TopicPartition, int]:
        windows = {key: self._window(key, reach.start_offset, reach.end_offset) for key, reach in reached.items()}
        limited = time_limit.ends(windows, self._clock.now_ms())
        if limited is None:
            return {key: reach.offsets for key, reach in reached.items()}
        end_ms, least = limited
        asked = {key: (first, reached[key].end_offset) for key, first in least.items()}
        found, is_whole = self._opened().reach(asked, end_ms, self.options.read.isolation)
        if not is_whole:
            time_limit.cut()
        return {key: found[key] - reach.start_offset if key in found else 0 for key, reach in reached.items()}

    def _window(self, key: TopicPartition, first: int, behind: int) -> Window:
        behind = min(behind, first + WINDOW_OFFSETS)
        batches = list(self._sample(key, first, behind, ("offset", "timestamp")))
        offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        timestamps = [ms for batch in batches for ms in batch.column("timestamp").cast("int64").fill_null(-1).to_pylist()]
        return Window(offsets, timestamps, behind)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_source": None}
