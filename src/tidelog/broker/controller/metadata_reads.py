"""Reads the metadata log for brokers that fetch it (KIP-595, KIP-630): whole batches from an offset, or a snapshot to start
with.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import NamedTuple

from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.paths.file_path import FilePath
from tidelog.reader.metadata_log import SnapshotFile, list_segments, list_snapshots
from tidelog.records.batch import iter_headers
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.wire.messages.describe_quorum import ReplicaState


class MetadataRead(NamedTuple):
    """The result of a fetch: batches, or the id of the snapshot that replaces deleted offsets. `end_offset` is the end of the log
    on disk.
    """

    end_offset: int
    records: memoryview
    snapshot: SnapshotFile | None = None
    is_beyond: bool = False
    """Whether the offset is above the log's end."""


class MetadataReads:
    """Reads the log of `store`, and wakes waiting fetches when it grows."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._waiting: set[Callable[[object], None]] = set()
        self._last: tuple[FilePath | None, int, int] = None, 0, 0
        """Where the last read ended: the segment, the offset and the position in the file."""
        loop = asyncio.get_running_loop()
        store.on_written = lambda: loop.call_soon_threadsafe(self._grown)

    def read(self, offset: int, max_bytes: int) -> MetadataRead:
        """Return batches, starting with the one that contains `offset`: at least one batch, otherwise at most `max_bytes`. Any
        thread may call it. Raises StorageError.
        """
        end = self._store.end_offset
        if offset >= end:
            return MetadataRead(end, memoryview(b""), is_beyond=offset > end)
        folder = self._store.log_folder
        segments = list_segments(folder)
        older = [path for path in segments if int(path.stem) <= offset]
        if not older:
            return MetadataRead(end, memoryview(b""), next(iter(list_snapshots(folder)), None))
        for path in segments[len(older) - 1 :]:
            position = self._position(path, offset)
            with ReadOnlyFile(path, fallbacks=()) as file:
                data = memoryview(file.read(position, max(file.size_bytes() - position, 0)))
            begin = stop = last = -1
            for header in iter_headers(data):
                if header.base_offset >= end or (begin >= 0 and header.position + header.size - begin > max_bytes):
                    break
                if header.next_offset > offset:
                    begin = header.position if begin < 0 else begin
                    stop, last = header.position + header.size, header.next_offset
            if begin >= 0:
                self._last = path, last, position + stop
                return MetadataRead(end, data[begin:stop])
        return MetadataRead(end, memoryview(b""))

    def _position(self, path: FilePath, offset: int) -> int:
        """Return a position in the segment from which to look for `offset`: where the last read ended if possible, otherwise
        0.
        """
        known, last, position = self._last
        return position if known == path and offset >= last else 0

    def wait(self, done: Callable[[object], None]) -> Callable[[], None]:
        """Call `done` once, the next time the log grows. The returned function ends the wait; it calls `done` unless `done` has
        already been called.
        """
        self._waiting.add(done)

        def stop() -> None:
            if done in self._waiting:
                self._waiting.discard(done)
                done(None)

        return stop

    def _grown(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for done in waiting:
            done(None)


SESSION_MS = 300_000
"""How long a broker is listed after its last fetch, in ms, as in Kafka's controllers."""


class Observers:
    """The last fetch of each broker that reads the metadata log, for DescribeQuorum (KIP-595, KIP-836). Not thread-safe."""

    def __init__(self) -> None:
        self._states: dict[int, ReplicaState] = {}

    def fetched(self, broker_id: int, directory_id: uuid.UUID, offset: int, log_end: int, now_ms: int) -> None:
        """Record a fetch from `offset` at the time `now_ms`, when the metadata log ended at `log_end`."""
        before = self._states.get(broker_id)
        if offset >= log_end:
            caught_up_ms = now_ms
        else:
            caught_up_ms = -1 if before is None else before.last_caught_up_timestamp
        self._states[broker_id] = ReplicaState(broker_id, directory_id, offset, now_ms, caught_up_ms)

    def states(self, now_ms: int) -> list[ReplicaState]:
        """Return the brokers that have fetched in the last `SESSION_MS`, by id."""
        return [one for _, one in sorted(self._states.items()) if now_ms - one.last_fetch_timestamp < SESSION_MS]
