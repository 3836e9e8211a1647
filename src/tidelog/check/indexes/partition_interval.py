"""Which partitions are gone through, and with which index.interval.bytes the indexes of one were written.

The interval is found from the beginning of a few segments: their first index entries bound it (`index_interval`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from tidelog.check.indexes.batch_table import EVERY_BATCH, BatchTable
from tidelog.check.indexes.index_content import OFFSET_ENTRY_BYTES, index_path
from tidelog.check.indexes.index_interval import IntervalVotes
from tidelog.check.indexes.offset_entry_forms import Form, read_entries
from tidelog.check.indexes.offset_index_check import add_gaps, chain_of
from tidelog.config import LogConfig
from tidelog.errors import InvalidArgumentError, SegmentChangedError
from tidelog.formats import names
from tidelog.formats.files import ReadOnlyFile
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.segment import Segment
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.storage.loading.log_scan import scan_log

DEFAULT_INTERVAL_BYTES = LogConfig().index_interval_bytes

_GUESSED_FROM_SEGMENTS = 3
_GUESSED_FROM_BYTES = 1 << 20
_ENOUGH_GAPS = 32


class PartitionToVerify(NamedTuple):
    """A partition: how it is opened, and what is likely its interval (None: nothing is known)."""

    open: Callable[[], Log]
    likely_interval_bytes: int | None = None


def select_partitions(log_dir: LogDir, topic: str | None = None, partitions: Sequence[int] = ()) -> list[tuple[str, int]]:
    """Return the partitions of a folder that are wanted: all, those of a topic, or the named ones of a topic.

    Raises UnknownTopicOrPartitionError, InvalidArgumentError for partitions of no topic.
    """
    if topic is None:
        if partitions:
            raise InvalidArgumentError("partitions of which topic", found=", ".join(map(str, partitions)))
        return [(name, partition) for name, numbers in sorted(log_dir.topics().items()) for partition in numbers]
    return [(topic, partition) for partition in sorted(set(partitions)) or log_dir.partitions(topic)]


def partitions_to_verify(log_dir: LogDir, wanted: Sequence[tuple[str, int]]) -> Iterator[PartitionToVerify]:
    """Yield partitions of a folder, each to be opened when its turn comes. Raises what reading the folder's topics raises."""
    topics = read_topics(log_dir.path)
    for topic, partition in wanted:

        def opened(topic: str = topic, partition: int = partition) -> Log:
            return log_dir.log(topic, partition)

        known = topics.get(topic)
        likely = None if known is None else LogConfig.from_properties(known.properties).index_interval_bytes
        yield PartitionToVerify(opened, likely)


def preferred_intervals(partition: PartitionToVerify) -> list[int]:
    """Return the intervals that a partition is likely to have, the likeliest first."""
    likely = partition.likely_interval_bytes
    return [DEFAULT_INTERVAL_BYTES] if likely is None else [likely, DEFAULT_INTERVAL_BYTES]


def guess_interval(segments: Sequence[Segment], preferred: Sequence[int]) -> int:
    """Return the interval that the first entries of a few segments were written with, the first of `preferred` without any.

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
    # What follows the last entry within a piece of the log says nothing of the interval.
    add_gaps(votes, table, chosen, has_sets=False, is_cut=is_cut)
