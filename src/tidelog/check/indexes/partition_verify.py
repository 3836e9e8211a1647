"""One partition's verification: its segments as tasks, their outcomes taken in order, its transactions followed.

Whoever runs the tasks, threads (`index_verify`) or Spark's workers (`spark.jobs`), makes one `PartitionVerification` and

1. hands `tasks` to `examine_segment` in any order, and gives the outcomes to `take` in the order of the tasks;
2. has those of `unclear`, if there are any, checked by the rules that `make_survey` finds, and gives the outcomes to
   `take_checked`;
3. asks for the `result`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.check.indexes.index_content import check_in_place, index_path, read_index
from tidelog.check.indexes.index_finding import Finding, shortened
from tidelog.check.indexes.index_rebuild import ProducerBatch, aborted_by, state_at
from tidelog.check.indexes.offset_entry_forms import Form
from tidelog.check.indexes.partition_interval import PartitionToVerify, guess_interval, preferred_intervals
from tidelog.check.indexes.segment_verify import (
    SURVEYED_SEGMENTS,
    CheckedSegment,
    ExaminedSegment,
    SegmentToVerify,
    SurveySeed,
    gone,
)
from tidelog.check.indexes.time_entry_forms import TimeForm
from tidelog.check.indexes.txn_index_check import check_txn_index, has_gaps
from tidelog.errors import NotFoundError, SegmentChangedError
from tidelog.formats import names
from tidelog.formats.txn_index import ENTRY_BYTES as TXN_ENTRY_BYTES
from tidelog.reader.log import Log
from tidelog.reader.producer_state import ProducerState
from tidelog.reader.segment import Segment
from tidelog.storage.folder.clean_shutdown import CLEAN_SHUTDOWN_FILE


@dataclass
class VerifiedPartition:
    """What was found of a partition."""

    topic: str
    partition: int
    directory: Path
    interval_bytes: int
    """index.interval.bytes, as most of its segments have it."""
    segments: int = 0
    size_bytes: int = 0
    offset_entries: int = 0
    time_entries: int = 0
    aborted_transactions: int = 0
    time_maps: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """How many findings are faults."""
        return sum(finding.is_fault for finding in self.findings)


def checked_time_map_dir(directory: str | os.PathLike[str] | None) -> Path | None:
    """Return a folder of time maps. Raises NotFoundError where there is none of that name."""
    if directory is None:
        return None
    path = Path(directory)
    if not path.is_dir():
        raise NotFoundError("no such folder of time maps", path=path)
    return path


class PartitionVerification:
    """One partition on its way."""

    def __init__(self, partition: PartitionToVerify, interval_bytes: int | None = None, time_map_dir: Path | None = None) -> None:
        """Open the partition; `interval_bytes` None is found from its indexes. Raises what opening raises, and StorageError."""
        log = self._log = partition.open()
        self._preferred = preferred_intervals(partition)
        self._given = interval_bytes
        interval = guess_interval(log.segments, self._preferred) if interval_bytes is None else interval_bytes
        is_closed = (log.directory.parent / CLEAN_SHUTDOWN_FILE).exists()
        self.tasks = [
            SegmentToVerify(segment, segment.size_bytes, segment.is_last and not is_closed, interval, time_map_dir)
            for segment in log.segments
        ]
        self.unclear: list[SegmentToVerify] = []
        """Segments that are not just what their logs say, once all were taken."""
        self.usual: list[SegmentToVerify] = []
        """Some of those that are."""
        self.restarts = log.snapshots
        """Offsets at which the broker may have been started."""
        self._result = VerifiedPartition(log.topic, log.partition, log.directory, interval)
        self._result.findings += _orphans(log)
        self._taken = 0
        self._examined: list[Segment] = []
        self._state: ProducerState | None = None
        self._clear_offset_entries = self._clear_time_entries = 0
        """Of those among the usual ones that are not kept."""
        self._lost_records: bool | None = None
        self._forms: Counter[tuple[str, Form | TimeForm]] = Counter()

    def take(self, examined: ExaminedSegment) -> None:
        """Take the next segment's outcome. Raises StorageError."""
        result, task = self._result, self.tasks[self._taken]
        self._taken += 1
        result.segments += 1
        result.findings += examined.findings
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
        """What is known of the rules that the unclear segments were indexed by."""
        # A guess from segments that older releases indexed may be beside the mark.
        known = [self._result.interval_bytes] if self.usual else []
        return SurveySeed([*known, *self._preferred], self._given, self._clear_offset_entries, self._clear_time_entries)

    def take_checked(self, checked: CheckedSegment) -> None:
        """Take the next unclear segment's outcome."""
        if not self.usual and checked.interval_bytes is not None:
            self._result.interval_bytes = checked.interval_bytes
        self._result.findings += checked.findings
        self._forms += checked.forms

    def result(self) -> VerifiedPartition:
        """Return what was found, once everything was taken."""
        for (suffix, form), count in sorted(self._forms.items(), key=lambda item: (item[0][0], item[0][1].name)):
            if form not in (Form.BATCH, TimeForm.LAST):
                entries = "1 entry" if count == 1 else f"{count} entries"
                what = f"{suffix}: {entries} {form.value}: not by the rules of Kafka 3.9.1, and right"
                self._result.findings.append(Finding(self._log.directory, what, is_fault=False))
        self._result.findings.sort(key=lambda finding: (finding.path.name, finding.slot is None, finding.slot or 0))
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
        """Whether compaction or retention took records from what was examined so far."""
        if not self._lost_records:
            first = self._examined[0]
            is_beginning = first.base_offset == 0 or first.index_path(names.SNAPSHOT_SUFFIX).exists()
            self._lost_records = not is_beginning or any(has_gaps(one.file, one.base_offset) for one in self._examined)
        return self._lost_records


def _orphans(log: Log) -> list[Finding]:
    """Return a note for each index without a segment."""
    bases = {segment.base_offset for segment in log.segments}
    suffixes = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX, names.TIME_MAP_SUFFIX)
    return [
        Finding(path, "there is no segment of that name", is_fault=False)
        for path in sorted(log.directory.iterdir())
        if path.suffix in suffixes and path.stem.isdecimal() and int(path.stem) not in bases
    ]
