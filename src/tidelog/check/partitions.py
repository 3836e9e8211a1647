"""Verifies or rebuilds partitions: selects them, infers index.interval.bytes, and handles what spans segments.

The interval is inferred from the start of a few segments, whose first index entries bound it (`interval_votes`).

Callers run the segments' tasks on threads (`folder_indexes`) or on Spark's workers (`spark.jobs`). For each partition they create
one `PartitionVerification` or `PartitionRebuild`, and

1. pass its `tasks` to `examine_segment` or `rebuild_segment` in any order, and the outcomes to `take` in the order of the tasks,
because transactions continue from segment to segment;
2. when verifying, check the segments in `unclear` by the rules that `make_survey` finds, and pass the outcomes to `take_checked`;
3. call `result`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tidelog.check.batch_table import EVERY_BATCH, BatchTable
from tidelog.check.finding import Finding, shortened
from tidelog.check.index_files import OFFSET_ENTRY_BYTES, RebuiltFile, check_in_place, index_path, make_folder, put, read_index
from tidelog.check.interval_votes import IntervalVotes
from tidelog.check.offset_index import Form, add_gaps, chain_of, read_entries
from tidelog.check.partition_rules import BatchFacts, joined_facts
from tidelog.check.segment_indexes import MISSING
from tidelog.check.segments import (
    SURVEYED_SEGMENTS,
    CheckedSegment,
    ExaminedSegment,
    RebuiltSegment,
    SegmentToRebuild,
    SegmentToVerify,
    SurveySeed,
    gone,
)
from tidelog.check.time_index import TimeForm
from tidelog.check.txn_index import ProducerBatch, aborted_by, check_txn_index, has_gaps, state_at
from tidelog.config import LogConfig
from tidelog.errors import InvalidArgumentError, NotFoundError, SegmentChangedError
from tidelog.formats import names
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.paths.file_path import FilePath
from tidelog.formats.summary.known_segments import read_summary
from tidelog.formats.summary.segment_summary import SegmentFacts, encode_summary
from tidelog.formats.txn_index import ENTRY_BYTES as TXN_ENTRY_BYTES
from tidelog.model import MAX_OFFSET
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.producer_state import ProducerState
from tidelog.reader.segment import Segment
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.storage.loading.log_scan import scan_log

DEFAULT_INTERVAL_BYTES = LogConfig().index_interval_bytes

_GUESSED_FROM_SEGMENTS = 3
_GUESSED_FROM_BYTES = 1 << 20
_ENOUGH_GAPS = 32


class PartitionToVerify(NamedTuple):
    """A partition: a function that opens it, and its likely index.interval.bytes (None: unknown)."""

    open: Callable[[], Log]
    likely_interval_bytes: int | None = None


def select_partitions(log_dir: LogDir, topic: str | None = None, partitions: Sequence[int] = ()) -> list[tuple[str, int]]:
    """Return the selected partitions of a folder: all partitions, all partitions of one topic, or the given partitions of one
    topic.

    Raises UnknownTopicOrPartitionError, and InvalidArgumentError for partitions without a topic.
    """
    if topic is None:
        if partitions:
            raise InvalidArgumentError(
                "partitions are given without a topic: name the topic", found=", ".join(map(str, partitions))
            )
        return [(name, partition) for name, numbers in sorted(log_dir.topics().items()) for partition in numbers]
    return [(topic, partition) for partition in sorted(set(partitions)) or log_dir.partitions(topic)]


def partitions_to_verify(log_dir: LogDir, wanted: Sequence[tuple[str, int]]) -> Iterator[PartitionToVerify]:
    """Yield partitions of a folder, which are opened only when needed. Raises the errors of reading the folder's topics."""
    topics = read_topics(log_dir.path)
    for topic, partition in wanted:

        def opened(topic: str = topic, partition: int = partition) -> Log:
            return log_dir.log(topic, partition)

        known = topics.get(topic)
        likely = None if known is None else LogConfig.from_properties(known.properties).index_interval_bytes
        yield PartitionToVerify(opened, likely)


def preferred_intervals(partition: PartitionToVerify) -> list[int]:
    """Return a partition's likely intervals, the likeliest first."""
    likely = partition.likely_interval_bytes
    return [DEFAULT_INTERVAL_BYTES] if likely is None else [likely, DEFAULT_INTERVAL_BYTES]


def guess_interval(segments: Sequence[Segment], preferred: Sequence[int]) -> int:
    """Infer the interval from the first entries of a few segments; without entries, return the first of `preferred`.

    Raises StorageError.
    """
    votes = IntervalVotes()
    for segment in islice((one for one in segments if one.size_bytes), _GUESSED_FROM_SEGMENTS):
        try:
            _vote(votes, segment)
        except SegmentChangedError:
            continue
        finally:
            segment.close()
        if votes.closed >= _ENOUGH_GAPS:
            break
    return votes.best(preferred)


def _vote(votes: IntervalVotes, segment: Segment) -> None:
    path = index_path(segment.log_path, names.INDEX_SUFFIX)
    is_cut = segment.size_bytes > _GUESSED_FROM_BYTES
    size = min(segment.size_bytes, _GUESSED_FROM_BYTES)
    table = BatchTable(scan_log(segment.file, size, segment.base_offset, EVERY_BATCH))
    with ReadOnlyFile(path, fallbacks=()) as file:
        data = file.read(0, len(table) * OFFSET_ENTRY_BYTES)
    entries = read_entries(data[: len(data) - len(data) % OFFSET_ENTRY_BYTES], table, segment.file)
    forms = frozenset({Form.BATCH})
    chosen = chain_of(entries, forms)
    # In a part of the log, the bytes after the last entry say nothing about the interval.
    add_gaps(votes, table, chosen, has_sets=False, is_cut=is_cut)


@dataclass
class CheckedPartition:
    """A partition's findings: the fields that verifying and rebuilding have in common."""

    topic: str
    partition: int
    directory: FilePath
    interval_bytes: int
    """The index.interval.bytes of the partition's indexes."""
    segments: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


# --- verified


@dataclass
class VerifiedPartition(CheckedPartition):
    """The result of verifying a partition. `directory` is its folder, `interval_bytes` is the interval of most of its
    segments.
    """

    offset_entries: int = 0
    time_entries: int = 0
    aborted_transactions: int = 0
    time_maps: int = 0
    facts: BatchFacts | None = None
    """Epochs and gaps of the partition's batches; None if they must be found by a walk over all headers."""

    @property
    def faults(self) -> int:
        """The number of findings that are faults."""
        return sum(finding.is_fault for finding in self.findings)


def checked_time_map_dir(directory: str | os.PathLike[str] | None) -> Path | None:
    """Return `directory` as a path, None if it is None. Raises NotFoundError if the folder does not exist."""
    if directory is None:
        return None
    path = Path(directory)
    if not path.is_dir():
        raise NotFoundError(f"the time map directory {'is a file' if path.exists() else 'does not exist'}", path=path)
    return path


class PartitionVerification:
    """A partition that is being verified."""

    def __init__(
        self, partition: PartitionToVerify, interval_bytes: int | None = None, time_map_dir: FilePath | None = None
    ) -> None:
        """Open the partition. If `interval_bytes` is None, it is inferred from the indexes. Raises StorageError and the errors of
        opening.
        """
        log = self._log = partition.open()
        self._preferred = preferred_intervals(partition)
        self._given = interval_bytes
        interval = guess_interval(log.segments, self._preferred) if interval_bytes is None else interval_bytes
        told = read_summary(log.directory, log.notices)
        is_closed = (log.directory.parent / names.CLEAN_SHUTDOWN_FILE).exists()
        self.tasks = [
            SegmentToVerify(
                segment,
                segment.size_bytes,
                segment.is_last and not is_closed,
                interval,
                time_map_dir,
                told.get(segment.base_offset),
            )
            for segment in log.segments
        ]
        self.unclear: list[SegmentToVerify] = []
        """Segments whose indexes differ from what Kafka 3.9.1 writes. Complete after all outcomes have been taken."""
        self.usual: list[SegmentToVerify] = []
        """Some of the segments whose indexes are what Kafka 3.9.1 writes."""
        self.restarts = log.snapshots
        """Offsets at which the broker may have been restarted."""
        self._result = VerifiedPartition(log.topic, log.partition, log.directory, interval)
        self._result.findings += [*_orphans(log), *_interrupted(log.directory)]
        self._taken = 0
        self._examined: list[Segment] = []
        self._state: ProducerState | None = None
        self._clear_offset_entries = self._clear_time_entries = 0
        """The numbers of entries in the other segments whose indexes are what Kafka 3.9.1 writes."""
        self._lost_records: bool | None = None
        self._forms: Counter[tuple[str, Form | TimeForm]] = Counter()
        self._facts: list[BatchFacts | None] = []

    def take(self, examined: ExaminedSegment) -> None:
        """Take the next segment's outcome. Raises StorageError."""
        result, task = self._result, self.tasks[self._taken]
        self._taken += 1
        result.segments += 1
        result.findings += examined.findings
        self._facts.append(examined.facts)
        if examined.size_bytes is None:
            return
        result.size_bytes += examined.size_bytes
        result.offset_entries += examined.offset_entries
        result.time_entries += examined.time_entries
        result.time_maps += examined.time_maps
        self._examined.append(task.segment)
        if not examined.is_as_expected:
            self.unclear.append(task)
        elif len(self.usual) < SURVEYED_SEGMENTS:
            self.usual.append(task)
        else:
            self._clear_offset_entries += examined.offset_entries
            self._clear_time_entries += examined.time_entries
        try:
            self._check_transactions(task.segment, examined.transactions)
        except SegmentChangedError:
            result.findings.append(gone(task.segment))
        task.segment.close()

    @property
    def survey_seed(self) -> SurveySeed:
        """What is known about the partition before the segments in `unclear` are checked."""
        # An interval guessed from segments that older releases indexed may be wrong.
        known = [self._result.interval_bytes] if self.usual else []
        return SurveySeed([*known, *self._preferred], self._given, self._clear_offset_entries, self._clear_time_entries)

    def take_checked(self, checked: CheckedSegment) -> None:
        """Take the next unclear segment's outcome."""
        if not self.usual and checked.interval_bytes is not None:
            self._result.interval_bytes = checked.interval_bytes
        self._result.findings += checked.findings
        self._forms += checked.forms

    def result(self) -> VerifiedPartition:
        """Return the result. Call this after all outcomes have been taken."""
        facts = [one for one in self._facts if one is not None]
        self._result.facts = joined_facts(facts) if len(facts) == len(self._facts) else None
        for (suffix, form), count in sorted(self._forms.items(), key=lambda item: (item[0][0], item[0][1].name)):
            if form not in (Form.BATCH, TimeForm.LAST):
                entries = "1 entry" if count == 1 else f"{count} entries"
                what = f"{suffix}: {entries} {form.value}: correct, but not as Kafka 3.9.1 writes them"
                self._result.findings.append(Finding(self._log.directory, what, kind="note"))
        if _is_older_than_time_indexes(self._log.directory):
            found = self._result.findings
            kept = [one for one in found if one.what != MISSING or not one.path.name.endswith(names.TIME_INDEX_SUFFIX)]
            if len(kept) < len(found):
                what = "there are no time indexes, as before Kafka 0.10.1: a broker that starts creates empty time indexes"
                self._result.findings = [*kept, Finding(self._log.directory, what, kind="note")]
        self._result.findings.sort(key=lambda finding: (finding.path.name, finding.entry is None, finding.entry or 0))
        return self._result

    def _check_transactions(self, segment: Segment, batches: Sequence[ProducerBatch]) -> None:
        if self._state is None:
            self._state = state_at(segment.log_path)
        aborted = aborted_by(batches, self._state)
        path = index_path(segment.log_path, names.TXN_INDEX_SUFFIX)
        content = read_index(path, TXN_ENTRY_BYTES)
        check_in_place(segment)
        self._result.aborted_transactions += len(aborted)
        markers = [header.position for header, _ in batches if header.is_control]
        found = check_txn_index(path, content, aborted, segment.file, markers, self._has_lost_records)
        self._result.findings += shortened(found)

    def _has_lost_records(self) -> bool:
        """Whether compaction or retention has removed records from the segments examined so far."""
        if not self._lost_records:
            first = self._examined[0]
            is_beginning = first.base_offset == 0 or first.index_path(names.SNAPSHOT_SUFFIX).exists()
            self._lost_records = not is_beginning or any(has_gaps(one.file, one.base_offset) for one in self._examined)
        return self._lost_records


def _orphans(log: Log) -> list[Finding]:
    """Return a note for each index file that has no segment."""
    bases = {segment.base_offset for segment in log.segments}
    suffixes = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX, names.TIME_MAP_SUFFIX)
    return [
        Finding(path, "belongs to no segment: there is no .log of that name", kind="note")
        for path in sorted(log.directory.iterdir())
        if path.suffix in suffixes and path.stem.isdecimal() and int(path.stem) not in bases
    ]


def _is_older_than_time_indexes(directory: FilePath) -> bool:
    """Whether only releases before 0.10.1 have written to a partition's folder: it has none of the files that later releases
    add.
    """
    suffixes = (names.TIME_INDEX_SUFFIX, names.SNAPSHOT_SUFFIX, names.LEADER_EPOCH_CHECKPOINT, names.PARTITION_METADATA)
    return not any(path.name.removesuffix(names.SWAP_SUFFIX).endswith(suffixes) for path in directory.iterdir())


def _interrupted(directory: FilePath) -> Iterator[Finding]:
    """Yield a note if a compaction or split is in progress or was interrupted. The note says what a broker does when it starts
    (spec §6.2).
    """
    found = [path for path in sorted(directory.iterdir()) if path.suffix in (names.CLEANED_SUFFIX, names.SWAP_SUFFIX)]
    bases = {}
    for path in found:
        try:
            bases[path] = names.offset_from_file_name(path.name)
        except InvalidArgumentError as error:
            yield Finding(path, f"{error.message}: no broker can load the partition")
    if not bases:
        return
    first_cleaned = min((base for path, base in bases.items() if path.suffix == names.CLEANED_SUFFIX), default=MAX_OFFSET)
    finished = sum(base < first_cleaned for base in bases.values())
    then = [f"puts {finished} .swap files into place"] if finished else []
    then += [f"removes {len(bases) - finished} unfinished files"] if finished < len(bases) else []
    what = f"a replacement of segments is in progress or was interrupted: a broker that starts {' and '.join(then)}"
    yield Finding(directory, what, kind="note")


# --- rebuilt


@dataclass
class RebuiltPartition(CheckedPartition):
    """The result of rebuilding a partition. `directory` contains the files; `findings` are the faults in its log."""

    files: list[RebuiltFile] = field(default_factory=list)

    @property
    def changed(self) -> list[RebuiltFile]:
        """Return the files that existed, were incorrect, and were rewritten."""
        return [file for file in self.files if not (file.is_right or file.is_left) and file.old_bytes is not None]

    @property
    def new(self) -> list[RebuiltFile]:
        """Return the files that were missing."""
        return [file for file in self.files if not file.is_right and file.old_bytes is None]

    @property
    def left(self) -> list[RebuiltFile]:
        """Return the incorrect files that were left unchanged because only missing files were to be written."""
        return [file for file in self.files if file.is_left]


def checked_out_dir(out_dir: str | os.PathLike[str] | None, data_dir: FilePath) -> Path | None:
    """Return the output folder, which need not exist. Raises InvalidArgumentError if it is inside the data folder."""
    out = None if out_dir is None else Path(out_dir)
    if out is not None and isinstance(data_dir, Path) and out.resolve().is_relative_to(data_dir.resolve()):
        raise InvalidArgumentError(
            "--out is inside the data folder: choose a folder outside it, or omit --out to rebuild the indexes in place",
            path=out,
        )
    return out


class RebuildRules(NamedTuple):
    """The files to build, and their target."""

    out_dir: Path | None = None
    """The target folder; None means in place."""
    interval_bytes: int | None = None
    """The index.interval.bytes; None to use the interval of the existing indexes."""
    time_maps: bool = True
    missing_only: bool = False
    """Leave existing files unchanged."""


class PartitionRebuild:
    """A partition that is being rebuilt."""

    def __init__(self, partition: PartitionToVerify, rules: RebuildRules) -> None:
        """Open the partition. Raises StorageError and the errors of opening."""
        log = partition.open()
        interval = rules.interval_bytes
        if interval is None:
            interval = guess_interval(log.segments, preferred_intervals(partition))
        out_dir = None if rules.out_dir is None else rules.out_dir / log.directory.name
        self.result = RebuiltPartition(log.topic, log.partition, out_dir or log.directory, interval)
        self.tasks = [
            SegmentToRebuild(segment, out_dir, interval, rules.time_maps, rules.missing_only) for segment in log.segments
        ]
        self._taken = 0
        self._facts: list[SegmentFacts] = []
        self._state: ProducerState | None = None
        if out_dir is not None:
            make_folder(out_dir)

    def take(self, rebuilt: RebuiltSegment) -> None:
        """Take the next segment's outcome, and write its `.txnindex`. After the last segment, write the summary. Raises
        StorageError.
        """
        task = self.tasks[self._taken]
        self._taken += 1
        if self._state is None:
            self._state = state_at(task.segment.log_path)
        aborted = aborted_by(rebuilt.transactions, self._state)
        self.result.segments += 1
        self.result.size_bytes += rebuilt.size_bytes
        self.result.findings += rebuilt.findings
        transactions = b"".join(txn.to_bytes() for txn in aborted) or None
        path = task.target(names.TXN_INDEX_SUFFIX)
        self.result.files += [*rebuilt.files, *put(path, transactions, missing_only=task.missing_only)]
        self._facts += [] if rebuilt.facts is None else [rebuilt.facts]
        if self._taken == len(self.tasks) and any(one.size_bytes for one in self._facts):
            summary = self.result.directory / names.SEGMENT_SUMMARY
            self.result.files += put(summary, encode_summary(self._facts), missing_only=task.missing_only)
