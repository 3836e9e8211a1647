"""Takes the points of a backup.

| step | note |
|---|---|
| request topics, their settings and the partitions' offsets | |
| read and write each partition's new batches | memory is bounded by one piece |
| compute the cut | see `cut` |
| write manifests and catalog, then the point, then its seal | a point exists only once everything that it needs exists |

A partition that fails is listed in the point (`incomplete`). The point then repeats its state from the previous point.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import has_magic
from typing import NamedTuple

from tidelog.backup.backup import Backup, Head, encode_head, read_head
from tidelog.backup.layout import HEAD, Seal, manifest_key
from tidelog.backup.manifest import (
    Point,
    TopicEntry,
    TopicManifest,
    encode,
    encode_catalog,
    encode_point,
    encode_topic,
)
from tidelog.backup.target import Target
from tidelog.capture.capture_source import CaptureSource, Failed, SourceEnds, SourceTopic
from tidelog.capture.cut import consistent_cut
from tidelog.capture.partition_capture import PartitionCapture
from tidelog.capture.partition_writer import MOST_SEGMENT_BYTES
from tidelog.clock import Clock
from tidelog.errors import IllegalStateError, NotFoundError, StorageError, TidelogError, UnknownTopicOrPartitionError
from tidelog.formats import names
from tidelog.model import METADATA_TOPIC, NO_TIMESTAMP, OFFSETS_TOPIC, TopicPartition
from tidelog.near_names import near_topics
from tidelog.times import format_time

logger = logging.getLogger("tidelog.backup")

DESCRIBED_MS = 60_000
"""How long settings and ACLs are cached before they are requested again. The settings of new topics are requested at once."""


@dataclass(frozen=True)
class Selection:
    """Decides which topics are backed up: those that match `patterns`, by default all except internal topics."""

    patterns: Sequence[str] = ()
    """Topic names, or patterns with `*` and `?`."""
    internal: bool = False
    """Whether to include internal topics."""
    groups: bool = True
    """Whether to include `__consumer_offsets`."""

    def takes(self, topic: SourceTopic) -> bool:
        """Return whether a topic is backed up."""
        if topic.name == METADATA_TOPIC:
            return False
        if topic.name in self.patterns:
            return True
        if topic.name == OFFSETS_TOPIC:
            return self.groups or self.internal
        if topic.is_internal:
            return self.internal
        return not self.patterns or any(fnmatchcase(topic.name, pattern) for pattern in self.patterns)


class PartitionRead(NamedTuple):
    """A partition to read, in any process. `read` returns the partition with its new records, and the error that stopped the
    reading, if any.
    """

    capture: PartitionCapture
    segment_bytes: int
    now_ms: int

    def read(self, source: CaptureSource, advance: Callable[[int], None]) -> tuple[PartitionCapture, TidelogError | None]:
        """Read the partition's new records. Raises StorageError for an error of the target or of the source's disk, because such
        an error concerns all partitions.
        """
        try:
            self.capture.read(source, self.segment_bytes, self.now_ms, advance)
        except StorageError:
            raise
        except TidelogError as error:
            return self.capture, error
        return self.capture, None


Elsewhere = Callable[[list[PartitionRead]], Iterable[tuple[PartitionCapture, TidelogError | None]]]


class Capture:
    """Backs up `source` into `target`, which is created if it does not exist. `advance` is called with the number of bytes read.

    `elsewhere` reads and flushes partitions in other processes, and returns them in order.

    Raises CorruptDataError for a damaged backup, StorageError.
    """

    def __init__(
        self,
        source: CaptureSource,
        target: Target,
        clock: Clock,
        selection: Selection | None = None,
        advance: Callable[[int], None] = lambda _: None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.source = source
        self._elsewhere = elsewhere
        self.selection = selection or Selection()
        self.backup = _opened(target, clock)
        self.last: Point | None = None
        """The newest point."""
        self._clock = clock
        self._advance = advance
        self._last_sha256: str | None = None
        self._partitions: dict[tuple[uuid.UUID, int], PartitionCapture] = {}
        self._topics: dict[uuid.UUID, tuple[TopicManifest, str]] = {}
        self._settings: dict[uuid.UUID, dict[str, str]] = {}
        """The settings by topic id, so that a topic that was created again does not get the settings of the deleted topic."""
        self._rights: str | None = None
        self._described_ms: int | None = None
        self._written = 0
        self._is_cut_known = True
        """Whether the last cut is consistent, or all transactions since the last consistent cut are known."""
        self._resume()

    def take(self) -> Point:
        """Take a point.

        Raises TidelogError if the source or the target cannot be reached. In this case no point is taken, and the next call
        continues from the last point.
        """
        try:
            return self._take()
        except BaseException:
            for partition in self._partitions.values():
                partition.drop()
            raise

    def _take(self) -> Point:
        self._refuse_others()
        self._written = 0
        now_ms = self._clock.now_ms()
        if self.last is not None and now_ms < self.last.taken_ms:
            text = "the clock is at %s, before the time of point %d: restores with --until may need --point"
            logger.warning(text, format_time(now_ms), self.last.sequence)
        failed: list[Failed] = []
        topics = self._chosen_topics()
        self._describe(topics, now_ms, failed)
        keys = {TopicPartition(topic.name, number): topic for topic in topics for number in topic.partitions}
        ends, unanswered = self.source.ends(keys)
        failed += [*unanswered.values(), *self.source.missing(ends)]
        captures = {key: self._capture(keys[key], key) for key in ends}
        for capture in captures.values():
            capture.begin()
        self._forget_truncated(captures, ends)
        reads = [self._read_of(one, now_ms) for key, one in captures.items() if one.must_read(ends[key])]
        for capture, error in self._read(reads):
            captures[capture.key] = self._partitions[capture.topic_id, capture.key.partition] = capture
            if error is not None:
                failed.append(Failed(names.log_dir_name(*capture.key), error))
                captures.pop(capture.key).drop()
        cut = consistent_cut({key: capture.cut_state() for key, capture in captures.items()})
        for capture in self._partitions.values():
            if captures.get(capture.key) is not capture:
                capture.miss()
        for key, capture in captures.items():
            capture.finish(cut[key], now_ms)
            self._written += capture.take_written()
        return self._write(topics, captures, failed, now_ms)

    # --- the source

    def _read_of(self, capture: PartitionCapture, now_ms: int) -> PartitionRead:
        settings = self._settings.get(capture.topic_id, {})
        return PartitionRead(capture, int(settings.get("segment.bytes", MOST_SEGMENT_BYTES)), now_ms)

    def _read(self, reads: list[PartitionRead]) -> Iterator[tuple[PartitionCapture, TidelogError | None]]:
        """Read partitions, some at the same time. Raises StorageError."""
        if self._elsewhere is not None and reads:
            for capture, error in self._elsewhere(reads):
                yield capture.reopen(self.backup), error
            return
        is_over = threading.Event()

        def advance(size_bytes: int) -> None:
            if is_over.is_set():
                raise IllegalStateError("the point was abandoned because another partition failed")
            self._advance(size_bytes)

        if min(self.source.parallel, len(reads)) <= 1:
            yield from (one.read(self.source, advance) for one in reads)
            return
        with ThreadPoolExecutor(self.source.parallel, "tidelog-capture") as pool:
            running = [pool.submit(one.read, self.source, advance) for one in reads]
            try:
                yield from (one.result() for one in running)
            except BaseException:
                is_over.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _chosen_topics(self) -> list[SourceTopic]:
        known = self.source.topics()
        before = {topic.name for topic, _ in self._topics.values()}
        for name in self.selection.patterns:
            # The last point may have a deleted topic of this name. Otherwise it is wrong, or this user may not see the topic.
            if name not in known and not any(fnmatchcase(one, name) for one in (*known, *before)):
                what = "no topic matches" if has_magic(name) else "no topic"
                near = near_topics(name, {one.name: list(one.partitions) for one in known.values()})
                raise UnknownTopicOrPartitionError(f"{what} {name!r}{near}", path=self.source.name)
        return [topic for topic in known.values() if self.selection.takes(topic)]

    def _describe(self, topics: Sequence[SourceTopic], now_ms: int, failed: list[Failed]) -> None:
        """Request settings and ACLs, unless the cached ones are recent enough."""
        is_due = self._described_ms is None or now_ms - self._described_ms >= DESCRIBED_MS or now_ms < self._described_ms
        wanted = {one.name: one.topic_id for one in topics if is_due or one.topic_id not in self._settings}
        if wanted:
            found, without = self.source.settings(wanted)
            self._settings = {} if is_due else self._settings
            self._settings |= {wanted[name]: settings for name, settings in found.items()}
            failed += without
        if is_due:
            self._rights = self._put_manifest(*encode("rights", self.source.rights()))
            self._described_ms = now_ms

    def _forget_truncated(
        self, captures: Mapping[TopicPartition, PartitionCapture], ends: Mapping[TopicPartition, SourceEnds]
    ) -> None:
        """Request the end offsets of leader epochs, and drop records that the source has truncated since the last point."""
        epochs = {key: capture.epoch_to_check(ends[key]) for key, capture in captures.items()}
        asked = {key: epoch for key, epoch in epochs.items() if epoch >= 0}
        for key, end_offset in (self.source.epoch_ends(asked) if asked else {}).items():
            captures[key].truncate(end_offset)

    def _capture(self, topic: SourceTopic, key: TopicPartition) -> PartitionCapture:
        place = topic.topic_id, key.partition
        capture = self._partitions.get(place)
        if capture is None:
            capture = self._partitions[place] = PartitionCapture(self.backup, key, topic.topic_id)
        return capture

    # --- the backup

    def _resume(self) -> None:
        """Continue from the newest point."""
        points = self.backup.points()
        if not points:
            return
        self.last = self.backup.read_point(points[-1])
        self._last_sha256 = hashlib.sha256(self.backup.target.get(points[-1].key)).hexdigest()
        self.backup.target.put(Seal(self.last.sequence, self._last_sha256).key, self._last_sha256.encode())
        for entry in self.backup.catalog(self.last).values():
            topic = self.backup.topic(entry)
            self._topics[topic.topic_id] = topic, entry.sha256
            for ends in entry.partitions:
                key = TopicPartition(topic.name, ends.partition)
                capture = self._partitions[topic.topic_id, ends.partition] = PartitionCapture(self.backup, key, topic.topic_id)
                capture.resume(topic, ends, is_late=bool(self.last.incomplete))
        self._is_cut_known = self.last.is_cut_consistent

    def _refuse_others(self, mine: Point | None = None) -> None:
        """Raise IllegalStateError if another process has added a point, or created the backup."""
        found = self.backup.points(None if self.last is None else self.last.name)
        found = [name for name in found if mine is None or name.key != mine.name.key]
        if found:
            text = "another process has added a point to this backup: stop one of the two processes"
            raise IllegalStateError(text, path=str(self.backup.target), found=found[-1].key)
        if self.last is None and (head := read_head(self.backup.target)) != self.backup.head:
            text = "another process has created this backup at the same time: stop one of the two processes"
            raise IllegalStateError(text, path=str(self.backup.target), found=head.backup_id, expected=self.backup.head.backup_id)

    def _write(
        self,
        topics: Sequence[SourceTopic],
        captures: Mapping[TopicPartition, PartitionCapture],
        failed: Sequence[Failed],
        now_ms: int,
    ) -> Point:
        entries: list[TopicEntry] = []
        found: list[PartitionCapture] = []
        for topic in topics:
            mine = [self._partitions.get((topic.topic_id, number)) for number in topic.partitions]
            kept = [one for one in mine if one is not None and one.ends is not None]
            entries.append(self._entry(topic, kept))
            found += kept
        catalog = self._put_manifest(*encode_catalog(sorted(entries)))
        ends = [one.ends for one in found if one.ends is not None]
        # If all transactions have ended, the cut cannot split any.
        is_quiet = all(one.stable_offset == one.end_offset for one in ends)
        is_known = self._is_cut_known and all(one.are_transactions_known for one in found)
        is_consistent = not failed and self.source.is_consistent and (is_known or is_quiet)
        point = Point(
            backup_id=self.backup.head.backup_id,
            sequence=1 if self.last is None else self.last.sequence + 1,
            taken_ms=now_ms,
            finished_ms=max(now_ms, self._clock.now_ms()),
            previous=self._last_sha256,
            source=self.source.name,
            cluster_id=self.source.cluster_id(),
            catalog=catalog,
            rights=self._rights,
            is_cut_consistent=is_consistent,
            topics=len(entries),
            partitions=len(found),
            size_bytes=sum(one.size_bytes for one in ends),
            written_bytes=self._written,
            max_time=max((one.max_time for one in ends), default=NO_TIMESTAMP),
            gaps=sum(len(capture.gaps) for capture in captures.values()),
            incomplete=tuple(map(str, failed)),
        )
        data = encode_point(point)
        sha256 = hashlib.sha256(data).hexdigest()
        self.backup.target.flush()  # Everything that a point needs is written before the point.
        self._refuse_others()
        self.backup.target.put(point.name.key, data)
        try:
            self._refuse_others(
                point
            )  # Of two processes that take a point at the same time, at least one notices the other here.
        except IllegalStateError:
            self.backup.target.delete([point.name.key])
            raise
        self.backup.target.put(Seal(point.sequence, sha256).key, sha256.encode())
        self.last, self._last_sha256 = point, sha256
        if is_consistent:
            self._is_cut_known = True
            for one in found:
                one.forget_ended()
        known = {(topic.topic_id, number) for topic in topics for number in topic.partitions}
        self._partitions = {place: one for place, one in self._partitions.items() if place in known}
        ids = {topic_id for topic_id, _ in known}
        self._topics = {topic_id: one for topic_id, one in self._topics.items() if topic_id in ids}
        return point

    def _entry(self, topic: SourceTopic, partitions: Sequence[PartitionCapture]) -> TopicEntry:
        settings = self._settings.get(topic.topic_id)
        manifest = TopicManifest(
            topic.name,
            topic.topic_id,
            topic.is_internal,
            topic.replication_factor,
            settings,
            {one.key.partition: one.sha256 for one in partitions if one.sha256 is not None},
        )
        known = self._topics.get(topic.topic_id)
        if known is None or known[0] != manifest:
            known = self._topics[topic.topic_id] = manifest, self._put_manifest(*encode_topic(manifest))
        is_compacted = topic.name == OFFSETS_TOPIC or "compact" in (settings or {}).get("cleanup.policy", "")
        ends = tuple(one.ends for one in partitions if one.ends is not None)
        return TopicEntry(topic.name, topic.topic_id, is_compacted, known[1], ends)

    def _put_manifest(self, sha256: str, data: bytes) -> str:
        if self.last is None or sha256 not in (self.last.catalog, self.last.rights):
            self.backup.target.put_soon(manifest_key(sha256), data)
            self._written += len(data)
        return sha256


def _opened(target: Target, clock: Clock) -> Backup:
    """Return the backup at `target`; if the target is empty, create a backup. Raises StorageError if the target has other
    files.
    """
    try:
        return Backup(target)
    except NotFoundError:
        other = next(iter(target.list()), None)
        if other is not None:
            text = "the target is neither empty nor a backup"
            raise StorageError(
                text, path=str(target), found=other[0], expected="a new or empty folder or prefix, or a backup"
            ) from None
        target.put(HEAD, encode_head(Head(uuid.uuid4(), clock.now_ms())))
        return Backup(target)
