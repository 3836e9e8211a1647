"""Finds the offsets that a partition's folder should contain but does not: missing segments, a missing head or end.

In a log that was never compacted, each segment begins where the previous one ends, because a roll names the new segment after the
log's end (spec §5.2). Other evidence of records:

==========================  ==========================================================================================
missing                     evidence
==========================  ==========================================================================================
segments in the middle      a segment's base is above the next offset of the previous one, and nothing indicates that the
                            log was compacted; in any log, an index file without its ``.log``, or one that reports
                            records between the end of its ``.log`` and the next segment
the head                    the first leader epoch begins below the first segment (deleting a head moves both); or an
                            index file without its ``.log`` below the first segment
the end                     the log ends below a checkpoint (recovery point, high watermark, log start), below a producer
                            snapshot, below the newest leader epoch, or below an index file without its ``.log``; or with
                            a torn tail, in a folder with the clean-shutdown marker. Snapshots and index files prove
                            nothing in a folder with that marker whose recovery point and high watermark are the log's end
present but hidden          records lie below the checkpoint's log start, and the first leader epoch begins before it:
                            deleting records moves both. If there are no epochs (formats v0 and v1) or they begin later,
                            nothing confirms or contradicts the checkpoint: the records may have been deleted
==========================  ==========================================================================================

A log counts as compacted if the cleaner's checkpoint lists it, if its topic's settings say so, or if it belongs to an internal
topic that Kafka always compacts. It also counts as compacted if its batches show traces of a cleaner: gaps between offsets within
a segment, or a batch with fewer records than offsets.

Concurrent changes by the owner are not reported. For this, the checkpoints must be read before the folder is listed, as `LogDir`
does. A ``.log`` that is being deleted, cleaned or swapped in keeps its name with a suffix, and a segment that vanishes during the
check is ignored. If a running broker has just removed the head, the check waits a moment for the leader epochs to confirm the
removal.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tidelog.errors import (
    CorruptBatchError,
    CorruptIndexError,
    InvalidArgumentError,
    NotFoundError,
    SegmentChangedError,
    StorageError,
)
from tidelog.formats import names
from tidelog.formats.dir_lock import is_locked
from tidelog.formats.files import Notices, ReadOnlyFile
from tidelog.formats.leader_epochs import EpochEntry
from tidelog.formats.offset_index import OffsetIndex
from tidelog.formats.paths.file_path import FilePath, list_names, with_ending
from tidelog.reader.missing.claims import Claims, read_epochs
from tidelog.reader.segment import Segment
from tidelog.records.batch import BatchHeader
from tidelog.times import format_time

if TYPE_CHECKING:
    from tidelog.reader.log_segments import LogSegments
    from tidelog.reader.segment_end import SegmentEnd

_OWNER_S = 2.0
"""How long (s) a running broker may take between removing a log's head and writing the leader epochs that confirm the removal."""

_INDEX_SUFFIXES = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX)

Kind = Literal["segment", "head", "end", "partition", "hidden", "perhaps_deleted"]


class MissingOffsets(NamedTuple):
    """Offsets `[first_offset, end_offset)` of a partition that should be in a folder but are not."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    """The end of the missing range, exclusive. If the end of a log or a whole partition is missing, the true end may have been
    higher.
    """
    kind: Kind
    reason: str
    """The evidence that these records existed."""
    previous_timestamp: int | None = None
    """The largest timestamp (ms) of the last batch before the missing offsets; None if it is unknown."""
    next_timestamp: int | None = None
    """The largest timestamp (ms) of the first batch after the missing offsets; None if it is unknown. Late and early records may
    be outside these bounds.
    """

    def __str__(self) -> str:
        what = _WORDS.get(self.kind, "missing")
        times = ""
        if self.previous_timestamp is not None:
            times = f"; the batch before is from {format_time(self.previous_timestamp)}"
        if self.next_timestamp is not None:
            times += f"{',' if times else ';'} the batch after is from {format_time(self.next_timestamp)}"
        return f"{self.topic}-{self.partition}: offsets [{self.first_offset}, {self.end_offset}) {what}: {self.reason}{times}"

    @property
    def is_loss(self) -> bool:
        """Whether these offsets are certainly lost, so that results are incomplete. If not, the records may have been deleted,
        and a note suffices.
        """
        return self.kind != "perhaps_deleted"

    @property
    def sentence(self) -> str:
        """The text of `str` as a complete sentence, for log files that also have other content."""
        return f"records are {'missing from the folder' if self.is_loss else 'perhaps missing'}: {self}"

    def fields(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return self._asdict()


_WORDS = {
    "partition": "the partition is missing",
    "hidden": "are in the files but are not read",
    "perhaps_deleted": "are in the files but are not read",
}


def is_any_lost(missing: Iterable[MissingOffsets]) -> bool:
    """Return whether any of these offsets are certainly lost, so that results are incomplete."""
    return any(one.is_loss for one in missing)


def missing_offsets(log: LogSegments, claims: Claims, start_offset: int, end_offset: int | None) -> Iterator[MissingOffsets]:
    """Yield the missing parts of `[start_offset, end_offset)` in order. An end of None stands for the offset at which the log
    should end.

    Below the log start, only records that exist and that the log start hides are reported. Raises CorruptBatchError if the last
    segment is damaged, SegmentChangedError, StorageError.
    """
    log_start_offset = claims.log_start_offset or 0
    for found in _hidden(log, log_start_offset):
        if found.end_offset > start_offset:
            yield found
    start_offset = max(start_offset, log_start_offset)
    orphans = _Orphans(log.directory, {segment.base_offset for segment in log.segments})
    for found in _all_missing(log, claims, orphans, start_offset, end_offset):
        if found.end_offset > start_offset and (end_offset is None or found.first_offset < end_offset):
            yield found._replace(first_offset=max(found.first_offset, log_start_offset))


def _all_missing(
    log: LogSegments, claims: Claims, orphans: _Orphans, start_offset: int, end_offset: int | None
) -> Iterator[MissingOffsets]:
    segments = log.segments
    if segments and (end_offset is None or start_offset < segments[0].base_offset):
        yield from _head(log, claims, orphans)
    is_known = True
    for before, behind in pairwise(segments):
        if end_offset is not None and before.base_offset >= end_offset:
            return
        if behind.base_offset <= start_offset:
            continue
        if before.facts is not None and before.facts.next_offset == behind.base_offset:
            is_known = is_known or before.size_bytes > 0
            continue
        end = _end_of(before)
        # An empty segment ends at its base. That is no evidence if the previous segment is damaged or extends beyond this base.
        is_known = end is not None and (is_known or before.size_bytes > 0)
        if end is None or not is_known or end.next_offset >= behind.base_offset:
            continue
        lost = orphans.between(end.next_offset, behind.base_offset - 1)
        if lost is not None:
            reason = f"{lost.name} exists, but its .log does not"
        else:
            cut = _told_beyond(before, end, behind.base_offset) if log.is_compacted else "no segment holds them"
            if cut is None:
                continue
            reason = cut
        yield _missing(log, end.next_offset, behind.base_offset, "segment", reason, end.last_header, _first_header(behind))
    if end_offset is None or not segments or segments[-1].base_offset < end_offset:
        yield from _end(log, claims, orphans)


def _told_beyond(segment: Segment, end: SegmentEnd, limit: int) -> str | None:
    """Return a message about an index file that refers to a record between the segment's end and `limit`, or None if no index
    does. Such an index proves that the `.log` was truncated, even in a compacted log.

    A cleaner replaces the indexes together with the `.log`, so the indexes count only while the `.log` is still the file that was
    read. Time maps do not count: Kafka does not know them, so a map may be left over from an earlier `.log`.
    """
    log_path, index = segment.index_path(names.LOG_SUFFIX), segment.index_path(names.INDEX_SUFFIX)
    told: list[tuple[FilePath, Callable[[], int]]] = [
        (segment.index_path(names.TIME_INDEX_SUFFIX), lambda: _last_timed(segment)),
        (index, lambda: _last_indexed(index, segment.base_offset, end.position)),
    ]
    for path, last_offset in told:
        with contextlib.suppress(CorruptIndexError, SegmentChangedError, StorageError):
            if end.next_offset <= last_offset() < limit and segment.log_path == segment.file.locate() == log_path:
                return f"{path.name} has an entry past the end of the .log"
    return None


def _last_timed(segment: Segment) -> int:
    entry = segment.unchecked_last_time_entry
    return entry.offset if entry.timestamp >= 0 else -1


def _last_indexed(path: FilePath, base_offset: int, end_position: int) -> int:
    """Return the offset of an offset index's last entry if the entry points to `end_position` or after it, otherwise -1."""
    with ReadOnlyFile(path, fallbacks=()) as file:
        index = OffsetIndex.open(file, base_offset)
        entry = index.entry(index.entries - 1) if index.entries else None
    return -1 if entry is None or entry.position < end_position else entry.offset


def _hidden(log: LogSegments, log_start_offset: int) -> Iterator[MissingOffsets]:
    """Yield the offsets below the log start that are in the files and that the leader epochs do not confirm as deleted."""
    if not log.segments or log.segments[0].base_offset >= log_start_offset:
        return
    # Read the epochs again: an owner moves them before the log start.
    epoch = read_epochs(log.directory).earliest
    if epoch is not None and epoch.start_offset == log_start_offset:
        return
    first = next((header for segment in log.segments if (header := _first_header(segment)) is not None), None)
    if first is None or first.base_offset >= log_start_offset:
        return
    start = first.base_offset if first.magic == 2 else log.segments[0].base_offset
    end = min(log_start_offset, log.segments[-1].next_offset)
    reason = f"{names.LOG_START_OFFSET_CHECKPOINT} says {log_start_offset}"
    kind: Kind = "perhaps_deleted"
    if epoch is not None and epoch.start_offset < log_start_offset:
        kind = "hidden"
        reason += f", and leader epoch {epoch.epoch} begins at offset {epoch.start_offset}"
    else:
        reason += ", and no leader epoch confirms that they were deleted"
    yield MissingOffsets(log.topic, log.partition, start, end, kind, reason)


def _missing(
    log: LogSegments, first: int, end: int, kind: Kind, reason: str, before: BatchHeader | None, behind: BatchHeader | None
) -> MissingOffsets:
    return MissingOffsets(log.topic, log.partition, first, end, kind, reason, _time(before), _time(behind))


def _head(log: LogSegments, claims: Claims, orphans: _Orphans) -> Iterator[MissingOffsets]:
    first = log.segments[0]
    # Read the epoch again: an owner moves it together with the first segment.
    epoch = read_epochs(log.directory).earliest
    lost = orphans.between(0, first.base_offset - 1)
    starts: list[tuple[int, str]] = []
    if epoch is not None and epoch.start_offset < first.base_offset:
        starts.append((epoch.start_offset, f"leader epoch {epoch.epoch} begins at offset {epoch.start_offset}"))
    if lost is not None:
        starts.append((_base(lost), f"{lost.name} exists, but its .log does not"))
    if starts and (claims.cleaner_offset is not None or not _is_losing_its_head(log.directory, first.base_offset)):
        if _moves(log.directory, epoch):
            return  # In the meantime the owner has written the epochs and removed the segment.
        start, reason = min(starts)
        reason += f", but the first segment begins at {first.base_offset}"
        if claims.is_tiered is not None and claims.is_tiered():
            reason += "; the topic is tiered, so they may be in remote storage: set the option tier to its address"
        yield _missing(log, start, first.base_offset, "head", reason, None, _first_header(first))


def _end(log: LogSegments, claims: Claims, orphans: _Orphans) -> Iterator[MissingOffsets]:
    end = log.segments[-1].valid_end() if log.segments else None
    # Without segments the log begins at the checkpoint's offset.
    next_offset = claims.log_start_offset or 0 if end is None else end.next_offset
    said = [
        (claims.recovery_point, f"{names.RECOVERY_POINT_CHECKPOINT} says that the log was flushed up to {{}}"),
        (claims.high_watermark, f"{names.HIGH_WATERMARK_CHECKPOINT} says {{}}"),
        (claims.log_start_offset, f"{names.LOG_START_OFFSET_CHECKPOINT} says {{}}"),
    ]
    if claims.newest_epoch is not None:
        said.append((claims.newest_epoch.start_offset, f"leader epoch {claims.newest_epoch.epoch} begins at offset {{}}"))
    found: list[tuple[int, FilePath, str]] = []
    if log.snapshots:
        path = log.directory / names.file_name(log.snapshots[-1], names.SNAPSHOT_SUFFIX)
        found.append((log.snapshots[-1], path, "there is a producer snapshot for offset {}"))
    if claims.was_closed and end is not None and end.torn is not None:
        at_least = end.torn.end_offset or next_offset + 1
        said.append((at_least, f"the broker shut down cleanly ({names.CLEAN_SHUTDOWN_FILE}), but found a {end.torn}, below {{}}"))
    lost = orphans.last()
    if lost is not None:
        found.append((_base(lost) + 1, lost, f"{lost.name} exists, but its .log does not"))
    is_confirmed = claims.was_closed and claims.recovery_point == claims.high_watermark == next_offset
    for offset, path, text in found:
        if is_confirmed and offset > next_offset + 1:
            # If the end of a cleanly closed log is lost, its checkpoints are above the remaining end.
            why = f"belongs to a different log: after a clean shutdown, the checkpoints agree that this log ends at {next_offset}"
            log.notices.note(path, why)
        else:
            said.append((offset, text))
    offset, reason = max(((offset, text) for offset, text in said if offset is not None), default=(0, ""), key=lambda one: one[0])
    if offset > next_offset:
        reason = f"{reason.format(offset)}, but the log ends at {next_offset}"
        yield _missing(log, next_offset, offset, "end", reason, None if end is None else end.last_header, None)


def _end_of(segment: Segment) -> SegmentEnd | None:
    """Return a segment's end, or None if the segment vanished or its end is damaged. A later read of the segment raises the
    error.
    """
    try:
        return segment.valid_end()
    except (CorruptBatchError, SegmentChangedError):
        return None
    finally:
        segment.close()


def _first_header(segment: Segment) -> BatchHeader | None:
    try:
        return next(segment.headers(), None)
    except (CorruptBatchError, SegmentChangedError):
        return None
    finally:
        segment.close()


def _time(header: BatchHeader | None) -> int | None:
    return None if header is None or header.max_timestamp < 0 else header.max_timestamp


def _moves(directory: FilePath, epoch: EpochEntry | None) -> bool:
    """Return whether the first entry of the leader epochs is no longer `epoch`. If a process owns the folder, wait up to
    `_OWNER_S` seconds for the change.

    Kafka may remove a segment's files at once, but writes the epochs on another thread, with an fsync.
    """
    end = time.monotonic() + _OWNER_S
    while read_epochs(directory).earliest == epoch:
        if time.monotonic() > end or not is_locked(directory.parent):
            return False
        time.sleep(0.02)
    return True


def _is_losing_its_head(directory: FilePath, first_base_offset: int) -> bool:
    """Return whether the segment just below the first one is still awaiting removal (``.deleted``). If so, the owner is about to
    write the epochs.

    The result means nothing if compaction deleted segments.
    """
    ending = names.LOG_SUFFIX + names.DELETED_SUFFIX
    paths = [directory / name for name in _list(directory) if name.endswith(ending)]
    going = [path for path in paths if _base(path) < first_base_offset]
    if not going:
        return False
    try:
        with contextlib.closing(Segment.open(max(going), first_base_offset, _Silent())) as segment:
            return segment.next_offset == first_base_offset
    except (CorruptBatchError, SegmentChangedError, NotFoundError):
        return True  # Removed in the meantime.


def _list(directory: FilePath) -> list[str]:
    try:
        return list_names(directory)
    except OSError:
        return []


def _base(path: FilePath) -> int:
    try:
        return names.offset_from_file_name(path.name)
    except InvalidArgumentError:
        return -1


class _Silent(Notices):
    """Discards the notices about a segment that is being deleted, because gaps in it do not matter."""

    def note(self, path: FilePath, text: str) -> None:
        pass


class _Orphans:
    """Index files whose ``.log`` does not exist under any name."""

    def __init__(self, directory: FilePath, bases: set[int]) -> None:
        found = [directory / name for name in _list(directory) if name.endswith(_INDEX_SUFFIXES)]
        found = sorted(path for path in found if _base(path) >= 0 and _base(path) not in bases)
        # Check each name again: a listing may miss a file that is being renamed.
        self._paths = [path for path in found if not _has_log(path) and path.exists() and not _has_log(path)]

    def between(self, first: int, last: int) -> FilePath | None:
        """Return the index file with the lowest base in `first..last`."""
        return next((path for path in self._paths if first <= _base(path) <= last), None)

    def last(self) -> FilePath | None:
        return self._paths[-1] if self._paths else None


def _has_log(index: FilePath) -> bool:
    """Return whether an index's ``.log`` exists, even with a suffix that the index lacks because an owner is renaming both."""
    log = index.with_suffix(names.LOG_SUFFIX)
    endings = (names.DELETED_SUFFIX, names.SWAP_SUFFIX, names.CLEANED_SUFFIX)
    return log.exists() or any(
        with_ending(log, ending).exists() and not with_ending(index, ending).exists() for ending in endings
    )
