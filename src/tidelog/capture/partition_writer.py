"""Writes one partition of a backup: appends batches to its segments, and creates its manifest.

Between points the writer keeps the manifest and, once it has written batches, the producer state. Both can be read back, so a
backup can continue after any interruption. Data written after the last point is then written again, and equal data gets the same
names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tidelog.backup.backup import Backup
from tidelog.backup.layout import data_key, manifest_key
from tidelog.backup.manifest import (
    PAGE_SEGMENTS,
    Gap,
    PartitionManifest,
    Piece,
    Segment,
    Snapshot,
    StoredFile,
    encode_page,
    encode_partition,
)
from tidelog.capture.joining import join, pieces_to_join
from tidelog.capture.piece_builder import PIECE_BYTES, PieceBuilder
from tidelog.errors import CorruptDataError
from tidelog.formats import names
from tidelog.formats.index_entries import MAX_RELATIVE_OFFSET
from tidelog.formats.producer_snapshot import build_snapshot, parse_snapshot
from tidelog.reader.producer_state import ProducerState
from tidelog.records.batch import BatchHeader, check_crc, iter_headers
from tidelog.records.markers import end_txn_marker

MOST_SEGMENT_BYTES = 1024**3
MOST_ENDED = 10_000
"""The number of recent transactions that are kept. Up to twice this number may be kept temporarily."""
PRODUCER_MS = 7 * 24 * 3_600_000
"""A producer without an open transaction is dropped this long after its last batch, in milliseconds: Kafka's default."""


class Transaction(NamedTuple):
    """A producer's transaction in a partition. `marker_offset` is -1 while it is open."""

    producer_id: int
    first_offset: int
    marker_offset: int


class PartitionWriter:
    """Writes a partition, continuing from `manifest`."""

    def __init__(self, backup: Backup, manifest: PartitionManifest) -> None:
        self._backup = backup
        self.manifest = manifest
        self.segment_bytes = MOST_SEGMENT_BYTES
        """The topic's `segment.bytes`."""
        self.position = manifest.end_offset
        """The next expected offset."""
        self.written_bytes = 0
        self.ended: list[Transaction] = []
        """The ended transactions with markers at or after `ended_from`. `forget_ended` drops old transactions."""
        self.ended_from = manifest.stable_offset
        self._segments = list(manifest.segments)
        self._epochs = list(manifest.leader_epochs)
        self._gaps: list[Gap] = []
        self._builder: PieceBuilder | None = None
        self._state: ProducerState | None = None
        self._is_at_start = not manifest.segments and not manifest.pages
        """Whether the next batch is the log's first batch, which may begin below the log start offset."""
        self.is_changed = False
        """Whether anything except the log start offset and the cut differs from the manifest."""

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the backup, which `reopen` restores. Call `flush` first, because batches in memory are not pickled."""
        assert self._builder is None
        return {**self.__dict__, "_backup": None}

    def reopen(self, backup: Backup) -> PartitionWriter:
        """Continue in this process after another process has written."""
        self._backup = backup
        return self

    @property
    def place(self) -> str:
        """The partition's name in messages."""
        return names.log_dir_name(self.manifest.topic, self.manifest.partition)

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, -1 if there is none."""
        return self._epochs[-1][0] if self._epochs else -1

    @property
    def open_transactions(self) -> dict[int, int]:
        """The first offset of each open transaction, by producer id."""
        return self._producers().open_transactions

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Append a batch unchanged. Raises CorruptDataError for a damaged batch, or for offsets already in the backup."""
        check_crc(header, batch, self.place)
        state = self._producers()
        if header.base_offset < self.position and header.magic == 2 and not self._is_at_start:
            text = "a batch begins below the end offset of the backed-up records"
            raise CorruptDataError(text, path=self.place, found=header.base_offset, expected=f"{self.position} or more")
        builder = self._builder_for(header, len(batch))
        builder.add(header, batch)
        self.is_changed = True
        if header.magic == 2 and header.leader_epoch > self.last_epoch:
            self._epochs.append((header.leader_epoch, header.base_offset))
        marker = end_txn_marker(header, batch, self.place) if header.is_control and header.producer_id >= 0 else None
        completed = state.apply(header, marker)
        if marker is not None:
            # Compaction may have removed the transaction's records.
            first_offset = 0 if completed is None else completed.first_offset
            self._note_ended(Transaction(header.producer_id, first_offset, header.base_offset))
        if completed is not None:
            if completed.is_aborted:
                builder.add_aborted(state.aborted.pop())
            state.completed.clear()
        self.position, self._is_at_start = header.next_offset, False
        if builder.size_bytes >= PIECE_BYTES:
            self.flush()

    def skip(self, gap: Gap) -> None:
        """Skip offsets whose records were deleted."""
        self.flush()
        self._gaps.append(gap)
        self.position, self._is_at_start = gap.end_offset, True
        self._segments.append(Segment(self.position, ()))
        self._producers().map_end_offset = gap.end_offset
        self.is_changed = True

    def begin_segment(self) -> None:
        """Begin a new segment with the next batch."""
        self.flush()
        if self._segments and self._segments[-1].pieces:
            self._segments.append(Segment(self.position, ()))

    def flush(self) -> None:
        """Write the batches that are in memory. Raises StorageError."""
        builder, self._builder = self._builder, None
        if builder is None:
            return
        last = self._segments[-1]
        self._segments[-1] = last._replace(pieces=(*last.pieces, self._put(builder)))
        while count := pieces_to_join(self._segments[-1].pieces):
            last = self._segments[-1]
            joined = self._put(join(self._backup, self.manifest, last, count))
            self._segments[-1] = last._replace(pieces=(*last.pieces[:-count], joined))

    def cut_back(self, offset: int) -> None:
        """Drop all records at or after the offset at which the source's log was truncated, and all other records of the piece
        that contains this offset.
        """
        self._builder = None
        kept: list[Segment] = []
        for segment in self._backup.segments(self.manifest._replace(segments=tuple(self._segments))):
            pieces = tuple(piece for piece in segment.pieces if piece.end_offset <= offset)
            if pieces:
                kept.append(segment._replace(pieces=pieces))
            if len(pieces) < len(segment.pieces):
                break
        self.manifest = self.manifest._replace(pages=(), snapshot=None)
        self._segments = kept
        self.position = kept[-1].end_offset if kept else min(offset, self.manifest.log_start_offset)
        self._epochs = [(epoch, start) for epoch, start in self._epochs if start < self.position]
        self._state = self._replayed()
        self.ended = [one for one in self.ended if one.marker_offset < self.position]
        self.is_changed = True

    def recall_ended(self) -> None:
        """Find the transactions that ended at or after the cut of the last point, from the batches in the backup."""
        for segment in self._segments:
            for piece in segment.pieces:
                if piece.end_offset > self.ended_from:
                    for header, _ in self._batches(piece):
                        if header.is_control and header.producer_id >= 0 and header.base_offset >= self.ended_from:
                            # The transaction's first offset is unknown; 0 is on the safe side.
                            self._note_ended(Transaction(header.producer_id, 0, header.base_offset))

    def forget_ended(self, before: int) -> None:
        """Drop the ended transactions whose markers are below an offset."""
        self.ended = [one for one in self.ended if one.marker_offset >= before]
        self.ended_from = max(self.ended_from, before)

    def _note_ended(self, transaction: Transaction) -> None:
        self.ended.append(transaction)
        if len(self.ended) > 2 * MOST_ENDED:
            self.forget_ended(self.ended[-MOST_ENDED].marker_offset)

    def stable_offset(self) -> int:
        """Return the last stable offset of the records written. Every transaction below this offset has ended."""
        unstable = self._producers().first_unstable_offset()
        return self.position if unstable is None else min(unstable, self.position)

    def finish(self, log_start_offset: int, stable_offset: int, now_ms: int) -> str:
        """Write the batches in memory, the newest producer snapshot and the manifest; return the manifest's checksum.
        Raises StorageError.
        """
        self.flush()
        segments = [one for one in self._segments if one.pieces and one.end_offset > log_start_offset]
        pages = [one for one in self.manifest.pages if one.end_offset > log_start_offset]
        while len(segments) > PAGE_SEGMENTS:
            page, data = encode_page(segments[:PAGE_SEGMENTS])
            self._put_object(manifest_key(page.sha256), data)
            pages.append(page)
            del segments[:PAGE_SEGMENTS]
        epochs = [
            (epoch, max(start, log_start_offset))
            for slot, (epoch, start) in enumerate(self._epochs)
            if slot + 1 == len(self._epochs) or self._epochs[slot + 1][1] > log_start_offset
        ]
        gaps = [*(one for one in self.manifest.gaps if one.end_offset > log_start_offset), *self._gaps]
        self.manifest = self.manifest._replace(
            log_start_offset=log_start_offset,
            end_offset=self.position,
            stable_offset=stable_offset,
            leader_epochs=tuple(epochs),
            pages=tuple(pages),
            segments=tuple(segments),
            snapshot=self._snapshot(now_ms) if self.is_changed else self.manifest.snapshot,
            gaps=tuple(gaps),
        )
        self._segments, self._epochs, self._gaps, self.is_changed = segments, epochs, [], False
        sha256, data = encode_partition(self.manifest)
        self._put_object(manifest_key(sha256), data)
        return sha256

    def _snapshot(self, now_ms: int) -> Snapshot | None:
        state = self._producers()
        state.producers = {
            one.producer_id: one
            for one in state.entries()
            if one.current_txn_first_offset >= 0 or one.timestamp >= now_ms - PRODUCER_MS
        }
        if not state.producers:
            return None
        return self._put_snapshot(self.position, build_snapshot(state.entries()))

    def _put_snapshot(self, offset: int, data: bytes) -> Snapshot:
        snapshot = Snapshot(offset, StoredFile.of(data))
        self._put_object(self._key(snapshot.stem, names.SNAPSHOT_SUFFIX), data)
        return snapshot

    def _producers(self) -> ProducerState:
        if self._state is None:
            snapshot = self.manifest.snapshot
            if snapshot is None:
                self._state = ProducerState(map_end_offset=self.position)
            else:
                data = self._backup.read(self._key(snapshot.stem, names.SNAPSHOT_SUFFIX), snapshot.file)
                self._state = ProducerState(parse_snapshot(data), snapshot.offset)
        return self._state

    def _replayed(self) -> ProducerState:
        """Return the producer state after the remaining segments, computed from their batches."""
        state = ProducerState()
        for segment in self._segments:
            for piece in segment.pieces:
                for header, batch in self._batches(piece):
                    is_marker = header.is_control and header.producer_id >= 0
                    state.apply(header, end_txn_marker(header, batch, self.place) if is_marker else None)
        state.completed.clear()
        state.aborted.clear()
        state.map_end_offset = self.position
        return state

    def _batches(self, piece: Piece) -> Iterator[tuple[BatchHeader, memoryview]]:
        data = memoryview(self._backup.read(self._key(piece.stem, names.LOG_SUFFIX), piece.files[names.LOG_SUFFIX]))
        for header in iter_headers(data, 0, self.place):
            yield header, data[header.position : header.end_position]

    def _builder_for(self, header: BatchHeader, size: int) -> PieceBuilder:
        last = self._segments[-1] if self._segments else None
        if last is not None:
            end = last.size_bytes if self._builder is None else self._builder.end_position
            if (end and end + size > self.segment_bytes) or header.last_offset - last.base_offset > MAX_RELATIVE_OFFSET:
                self.flush()
                last = None
        if self._builder is None:
            if last is None or not last.pieces:
                # A segment begins where the previous one ends. The log's first batch may begin below the log start offset.
                if last is not None:
                    self._segments.pop()
                is_first = not self._segments and not self.manifest.pages
                state = None if is_first or self._is_at_start else build_snapshot(self._producers().entries())
                base = min(self.position, header.base_offset)
                last = Segment(base, (), None if state is None else self._put_snapshot(base, state).file)
                self._segments.append(last)
            self._builder = PieceBuilder(last.base_offset, last.size_bytes, last.max_time)
        return self._builder

    def _put(self, builder: PieceBuilder) -> Piece:
        piece, files = builder.finish()
        for suffix, data in files.items():
            self._put_object(self._key(piece.stem, suffix), data)
        builder.release()
        return piece

    def _put_object(self, key: str, data: bytes | memoryview) -> None:
        self._backup.target.put_soon(key, data)
        self.written_bytes += len(data)

    def _key(self, stem: str, suffix: str) -> str:
        return data_key(self.manifest.topic_id, self.manifest.partition, stem, suffix)
