"""A partition's folder in which remote segments appear beside the local ones, under Kafka's local names.

`TieredPath` has the interface of a path, so code that reads folders does not need to know where a segment is. A name is looked up
in the local folder first, then among the remote segments:

| name | remote file |
|---|---|
| ``<start offset>.log``, ``.index``, ``.timeindex``, ``.txnindex`` | the segment's file, cut where the next segment begins |
| ``<end offset + 1>.snapshot`` | the segment's producer snapshot, as of the segment's end |
| ``leader-epoch-checkpoint``, ``partition.metadata`` | the newest segment's file, only if there is no local folder |

Kafka may delete a local segment after the listing, once the segment's copy is finished. The segment is then read from remote
storage under the same name and identity. If no remote segment has the same bounds, because a different leader rolled its segments
elsewhere, the batches come from ranges of several remote segments (`remote_handle.py`). Such a ``.log`` has no indexes.
"""

from __future__ import annotations

import os
import stat as stat_modes
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.errors import CorruptDataError, CorruptIndexError, InvalidArgumentError, SegmentChangedError
from tidelog.formats import names
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.formats.offset_index import OffsetIndex
from tidelog.formats.partition_metadata import encode_topic_id
from tidelog.formats.paths.file_path import FilePath, Handle, list_names
from tidelog.formats.paths.local_handle import open_handle
from tidelog.formats.time_index import TimeIndex
from tidelog.model import NO_TIMESTAMP
from tidelog.objects.tier import Tier
from tidelog.reader.tiered.layout import BytesHandle, Layout, stat_of
from tidelog.reader.tiered.lineage import ChosenSegment, agreed_end, chosen_segments, newest_of
from tidelog.reader.tiered.remote_handle import JoinedHandle, Part, RemoteHandle
from tidelog.reader.tiered.remote_segments import RemoteSegment, TopicIdPartition

if TYPE_CHECKING:
    from tidelog.reader.segment import Segment

_OF_SEGMENT = (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX)


class Cut(NamedTuple):
    """The sizes and indexes of a segment that is read only up to an offset."""

    size_bytes: int
    files: dict[str, bytes]
    """The segment's indexes, truncated to match."""


class TieredFolder:
    """A partition's local folder, which need not exist, and its remote segments. Can be pickled.

    `look_again` returns the partition's current readable remote segments.
    """

    def __init__(
        self,
        local: FilePath,
        partition: TopicIdPartition,
        tier: Tier,
        layout: Layout,
        segments: list[RemoteSegment],
        log_start: int,
        look_again: Callable[[], list[RemoteSegment]],
    ) -> None:
        self.local = local
        self.partition = partition
        self.tier = tier
        self.layout = layout
        self.segments = segments
        self.log_start = log_start
        self._look_again = look_again
        self._cuts: dict[ChosenSegment, Cut] = {}
        self.is_local = local.is_dir()
        self.epochs = self._read_epochs()
        self.chosen: dict[int, ChosenSegment] = {}
        self.local_start: int | None = None
        self._local_bases: list[int] = []
        self._looked_for: int | None = None
        self.names()

    @property
    def path(self) -> TieredPath:
        """The path of the folder itself."""
        return TieredPath(self, "")

    def names(self) -> list[str]:
        """List the folder: choose again which remote segments are read, and return the names of local and remote files. Raises
        OSError.
        """
        found = list_names(self.local) if self.is_local else []
        logs = (name for name in found if names.is_log_file(name) and name.endswith(names.LOG_SUFFIX))
        self._local_bases = sorted(map(names.offset_from_file_name, logs))
        self.local_start = min(self._local_bases, default=None)
        chosen = self._choose()
        if (
            self.local_start not in (None, self._looked_for)
            and (chosen[-1].next_offset if chosen else self.log_start) < self.local_start
        ):
            # Since the metadata were read, Kafka may have copied a segment and deleted the local file.
            self.segments, self._looked_for = self._look_again(), self.local_start
            chosen = self._choose()
        self.chosen = {one.segment.start_offset: one for one in chosen}
        remote = [names.file_name(base, names.LOG_SUFFIX) for base in self.chosen]
        remote += [names.file_name(one.next_offset, names.SNAPSHOT_SUFFIX) for one in chosen if not one.is_cut]
        return list(dict.fromkeys([*found, *remote]))

    def _choose(self) -> list[ChosenSegment]:
        return chosen_segments(self.segments, self.epochs, self.local_start, self.log_start)

    @property
    def last_tiered_offset(self) -> int:
        """The highest offset in remote storage, -1 if there is none."""
        ends = [(one, agreed_end(one, self.epochs)) for one in self.segments]
        return max((end - 1 for one, end in ends if end > one.start_offset), default=-1)

    def only_for(self, name: str) -> TieredFolder:
        """Return a copy with only what opening the file `name` needs, small enough to send to another process."""
        found = self.find(name)
        base = None if "." not in name or not name[:1].isdigit() else names.offset_from_file_name(name)
        copy = TieredFolder.__new__(TieredFolder)
        copy.__dict__.update(self.__dict__)
        copy.chosen = {} if found is None else {found[0].segment.start_offset: found[0]}
        if base in self._local_bases:  # The file may move to remote segments with different bounds.
            end = next((one for one in self._local_bases if one > base), base + 1)
            copy.segments = [one for one in self.segments if one.start_offset < end and one.end_offset >= base]
        else:
            copy.segments = [one for one in self.segments if base == one.start_offset]
        copy._cuts = {one: cut for one, cut in self._cuts.items() if one in copy.chosen.values()}
        return copy

    def device(self) -> int:
        """Return the device number of the local folder. Remote files report the same device."""
        try:
            return self.local.stat().st_dev
        except OSError:
            return 0

    def find(self, name: str) -> tuple[ChosenSegment, str] | None:
        """Return the remote segment to which the file `name` belongs, and the file's suffix; None if there is none."""
        try:
            offset = names.offset_from_file_name(name)
        except InvalidArgumentError:
            newest = None if self.is_local or name != names.LEADER_EPOCH_CHECKPOINT else newest_of(self.segments)
            return None if newest is None else (ChosenSegment(newest, newest.end_offset + 1), name)
        suffix = name[name.index(".") :]
        if suffix == names.SNAPSHOT_SUFFIX:
            found = [one for one in self.chosen.values() if one.next_offset == offset and not one.is_cut]
            return (found[0], suffix) if found else None
        one = self.chosen.get(offset)
        return None if one is None or suffix not in _OF_SEGMENT else (one, suffix)

    def find_moved(self, name: str, seen: os.stat_result | None) -> tuple[ChosenSegment, str] | None:
        """Return the remote copy of a file whose segment was local when the folder was listed, but is now gone. `seen` is the
        stat result of a ``.log`` at that time. Without `seen`, the segment's ``.log`` must have been looked up before.
        """
        base, suffix = names.offset_from_file_name(name), name[name.index(".") :]
        if seen is None and (not self.is_local or (self.local / names.file_name(base, names.LOG_SUFFIX)).exists()):
            return None
        for again in (False, True) if seen is not None else (False,):
            if again:
                self.segments = self._look_again()
            for one in self.segments:
                whole = one.start_offset == base and agreed_end(one, self.epochs) == one.end_offset + 1
                if whole and one.size_bytes >= (0 if seen is None else seen.st_size):
                    return ChosenSegment(one, one.end_offset + 1), suffix
        return None

    def open_moved(self, name: str, seen: os.stat_result) -> Handle | None:
        """Open a ``.log`` that was local, with the stat result `seen`, as ranges of remote segments with different bounds. Return
        None if the remote segments do not have all of its batches. A batch has the same bytes in every replica.
        """
        offset, left = names.offset_from_file_name(name), seen.st_size
        parts: list[Part] = []
        for one in chosen_segments(self.segments, self.epochs, None):
            if one.next_offset <= offset or not left:
                continue
            start = self._position_of(one, offset)
            if start is None:
                return None
            end = self.cut(one).size_bytes if one.is_cut else one.segment.size_bytes
            parts.append(Part(partial(self.layout.open, one.segment, names.LOG_SUFFIX), start, min(end - start, left)))
            offset, left = one.next_offset, left - parts[-1].size_bytes
        return None if left else JoinedHandle(parts, seen)

    def _position_of(self, one: ChosenSegment, offset: int) -> int | None:
        """Return the position of the batch that begins with `offset` in a remote segment; None if the segment has no such
        batch.
        """
        with closing(self._whole_segment(one)) as segment:
            header = segment.translate_offset(offset) if one.segment.start_offset <= offset else None
        return header.position if header is not None and header.base_offset == offset else None

    def open(self, one: ChosenSegment, suffix: str) -> Handle:
        """Open a remote file, truncated if the segment is cut. Raises what `Layout.open` raises."""
        cut = self.cut(one) if one.is_cut else None
        if cut is not None and suffix in cut.files:
            return BytesHandle(cut.files[suffix])
        return self.layout.open(one.segment, suffix)

    def size_bytes(self, one: ChosenSegment, suffix: str) -> int:
        """Return the size of a remote file. The size of a whole ``.log`` is in the metadata; other files are opened."""
        if suffix == names.LOG_SUFFIX:
            return self.cut(one).size_bytes if one.is_cut else one.segment.size_bytes
        handle = self.open(one, suffix)
        try:
            return handle.stat().st_size
        finally:
            handle.close()

    def cut(self, one: ChosenSegment) -> Cut:
        """Determine where a segment is cut, from its indexes and a few batches."""
        if one not in self._cuts:
            self._cuts[one] = self._cut(one)
        return self._cuts[one]

    def _whole_segment(self, one: ChosenSegment) -> Segment:
        """Return a remote segment without a cut."""
        from tidelog.reader.segment import Segment

        whole = TieredFolder.__new__(TieredFolder)
        whole.__dict__.update(
            self.__dict__, is_local=False, chosen={one.segment.start_offset: one._replace(next_offset=one.segment.end_offset + 1)}
        )
        base = one.segment.start_offset
        return Segment.open(TieredPath(whole, names.file_name(base, names.LOG_SUFFIX)), one.segment.end_offset + 1)

    def _cut(self, one: ChosenSegment) -> Cut:
        base = one.segment.start_offset
        with closing(self._whole_segment(one)) as with_all:
            offsets = OffsetIndex.from_bytes(base, _whole(self.layout.open(one.segment, names.INDEX_SUFFIX)))
            times = TimeIndex.from_bytes(base, _whole(self.layout.open(one.segment, names.TIME_INDEX_SUFFIX)))
            times.truncate_to(one.next_offset)
            last = times.last_entry
            start = 0 if times.entries == 0 else with_all.floor_position(last.offset)
            position, largest, largest_offset = start, NO_TIMESTAMP, base
            for header in with_all.headers(start):
                if header.last_offset >= one.next_offset:
                    break
                position = header.end_position
                if header.max_timestamp > largest:
                    largest, largest_offset = header.max_timestamp, header.last_offset
            offsets.keep(offsets.entries_before(position))
            if largest > last.timestamp:
                times.maybe_append(largest, largest_offset, skip_full_check=True)
            files = {names.INDEX_SUFFIX: offsets.to_bytes(), names.TIME_INDEX_SUFFIX: times.to_bytes()}
            with suppress(CorruptIndexError):  # Reading the segment raises the error.
                aborted = with_all.open_txn_index()
                if aborted is not None:
                    # A marker after the cut is in the next segment, or was truncated from the log.
                    aborted.truncate_to(one.next_offset)
                    files[names.TXN_INDEX_SUFFIX] = aborted.to_bytes()
            return Cut(position, files)

    def _read_epochs(self) -> LeaderEpochs:
        if self.is_local:
            return LeaderEpochs.read(self.local / names.LEADER_EPOCH_CHECKPOINT)
        return LeaderEpochs.read(TieredPath(self, names.LEADER_EPOCH_CHECKPOINT))


class TieredPath:
    """A path in a `TieredFolder`; the name "" is the folder itself."""

    def __init__(self, folder: TieredFolder, name: str) -> None:
        self.folder = folder
        self._name = name
        self._seen: os.stat_result | None = None
        """The stat result of the local file, once it has been requested."""

    def __str__(self) -> str:
        found = self.folder.find(self._name) if self._seen is None and self._name else None
        if found is None:
            return str(self._local)
        path = self.folder.layout.path(found[0].segment)
        return str(path if found[1] == names.LOG_SUFFIX else path.with_suffix(found[1]))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "folder": self.folder.only_for(self._name)}

    def __repr__(self) -> str:
        return f"TieredPath({str(self)!r})"

    def __fspath__(self) -> str:
        raise TypeError(f"{self} may be in remote storage, so it has no local path")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TieredPath) and (self.folder.local, self._name) == (other.folder.local, other._name)

    def __hash__(self) -> int:
        return hash((self.folder.local, self._name))

    def __lt__(self, other: Any) -> bool:
        return str(self) < str(other)

    def __truediv__(self, name: str, /) -> TieredPath:
        return TieredPath(self.folder, name if not self._name else f"{self._name}/{name}")

    @property
    def _local(self) -> FilePath:
        return self.folder.local / self._name if self._name else self.folder.local

    @property
    def name(self) -> str:
        return self._name or self.folder.local.name

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> Any:
        return TieredPath(self.folder, "") if self._name else self.folder.local.parent

    def with_name(self, name: str, /) -> TieredPath:
        return TieredPath(self.folder, name)

    def with_suffix(self, suffix: str, /) -> TieredPath:
        return TieredPath(self.folder, PurePosixPath(self._name).with_suffix(suffix).name)

    def at(self, text: str) -> TieredPath:
        """Return the path whose local file is `text`."""
        return TieredPath(self.folder, PurePosixPath(text).name)

    def absolute(self) -> TieredPath:
        return self

    def iterdir(self) -> Iterator[TieredPath]:
        if self._name:
            raise NotADirectoryError(f"{self} is not a folder")
        return (self / name for name in self.folder.names())

    def is_dir(self) -> bool:
        return not self._name

    def is_file(self) -> bool:
        return bool(self._name) and self.exists()

    def is_symlink(self) -> bool:
        return self._local.is_symlink()

    def exists(self) -> bool:
        try:
            self.stat()
        except OSError:
            return False
        return True

    def stat(self) -> os.stat_result:
        folder = self.folder
        if not self._name:
            return folder.local.stat() if folder.is_local else os.stat_result((stat_modes.S_IFDIR, *[0] * 9))
        if folder.is_local:
            try:
                self._seen = self._local.stat()
            except FileNotFoundError:
                pass
            else:
                return self._seen
        data = self._generated()
        if data is not None:
            return stat_of(len(data), device=folder.device())
        one, suffix = self._remote()
        return self._stat_of(one, folder.size_bytes(one, suffix), suffix)

    def open_handle(self) -> Handle:
        """Open the file, local or remote. Raises OSError, in particular FileNotFoundError if it is neither."""
        if self.folder.is_local:
            try:
                return open_handle(self._local)
            except FileNotFoundError:
                pass
        data = self._generated()
        if data is not None:
            return BytesHandle(data)
        try:
            one, suffix = self._remote()
        except FileNotFoundError:
            moved = None
            if self._seen is not None and self.suffix == names.LOG_SUFFIX:
                moved = self.folder.open_moved(self._name, self._seen)
            if moved is None:
                raise
            return moved
        if suffix != names.LOG_SUFFIX:
            handle = self.folder.open(one, suffix)
            return RemoteHandle(handle, self._stat_of(one, handle.stat().st_size, suffix))
        path = self.folder.layout.path(one.segment)
        try:
            handle = self.folder.open(one, suffix)
        except FileNotFoundError:
            raise SegmentChangedError("a segment is gone from remote storage", path=path) from None
        size = handle.stat().st_size
        if size != one.segment.size_bytes:
            handle.close()
            raise CorruptDataError(
                "a segment has the wrong size in remote storage", path=path, found=size, expected=one.segment.size_bytes
            )
        return RemoteHandle(handle, self._stat_of(one, self.folder.size_bytes(one, suffix), suffix))

    def _remote(self) -> tuple[ChosenSegment, str]:
        """Return the remote segment that has the file, and the file's suffix. Raises FileNotFoundError."""
        found = self.folder.find(self._name)
        if found is None and self.suffix in _OF_SEGMENT:
            found = self.folder.find_moved(self._name, self._seen if self.suffix == names.LOG_SUFFIX else None)
        if found is None:
            raise FileNotFoundError(f"no such file, neither local nor in a remote segment: {self}")
        return found

    def _generated(self) -> bytes | None:
        """Return the content of a file that remote storage lacks but that follows from the metadata; None for other files."""
        is_asked = self._name == names.PARTITION_METADATA and not self.folder.is_local
        return encode_topic_id(self.folder.partition.topic_id) if is_asked else None

    def _stat_of(self, one: ChosenSegment, size_bytes: int, suffix: str) -> os.stat_result:
        # A local file that moved keeps its identity.
        inode = (one.segment.id.int + sum(suffix.encode())) & (1 << 62) - 1 if self._seen is None else self._seen.st_ino
        return stat_of(size_bytes, inode=inode, device=self.folder.device(), modified_ms=one.segment.event_ms)


def _whole(handle: Handle) -> bytes:
    try:
        return handle.read(0, handle.stat().st_size)
    finally:
        handle.close()
