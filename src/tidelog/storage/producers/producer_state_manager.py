"""The producer state of one partition: duplicates, sequences, epochs, open transactions, snapshots (spec §9; KIP-98).

The state covers the records below `map_end_offset`. It is loaded from the last sound snapshot and the later batches, and changes
with each append. When the log rolls or is closed, the state is written to a snapshot.

The order of an append is: `duplicate_of`, `prepare_update`, `ProducerAppendInfo.append`, the write itself, `update`. For each
transaction that the append completes, `last_stable_offset`, the transaction index and `complete_txn` follow. `map_end_offset` is
set last. `replay` does all this for a batch that is already in the log.

Invariants: `ongoing` holds one transaction for each producer with `current_txn_first_offset`; a completed transaction stays
unstable until the high watermark passes its marker. Not thread-safe. `PartitionLog`, the loader and recovery use it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from tidelog.clock import Clock
from tidelog.errors import CorruptSnapshotError, InvalidArgumentError
from tidelog.formats.producer_snapshot import ProducerEntry
from tidelog.model import TopicPartition
from tidelog.reader.producer_state import CompletedTxn
from tidelog.records.batch import NO_PRODUCER_ID, BatchHeader
from tidelog.records.control import EndTxnMarker
from tidelog.records.validation import AppendOrigin
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.producers.producer_append_info import ProducerAppendInfo
from tidelog.storage.producers.producer_snapshots import ProducerSnapshots
from tidelog.storage.producers.producer_state_entry import BatchMetadata, ProducerStateEntry
from tidelog.storage.producers.txn_metadata import TxnMetadata, TxnsByFirstOffset
from tidelog.storage.producers.verification_state_entry import VerificationStateEntry

logger = logging.getLogger("tidelog.storage")

PRODUCER_ID_EXPIRATION_MS = 86_400_000
AT_ONCE = 1000
"""How many entries are packed or checked in one step, while clients wait."""
MAX_TRANSACTION_TIMEOUT_MS = 900_000
LATE_TRANSACTION_BUFFER_MS = 300_000


class ProducerStateManager:
    """Producers by id. `map_end_offset` is the offset after the last known record; the caller updates it as the log grows."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: Path,
        clock: Clock,
        *,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
    ) -> None:
        """Begin without producers, at offset 0, and without reading anything. A producer without an open transaction is dropped
        after `producer_id_expiration_ms`. A transaction counts as late five minutes after `max_transaction_timeout_ms`.
        """
        self.topic_partition = topic_partition
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.max_transaction_timeout_ms = max_transaction_timeout_ms
        self.map_end_offset = 0
        self._clock = clock
        self._producers: dict[int, ProducerStateEntry] = {}
        self._ongoing = TxnsByFirstOffset()
        self._unreplicated = TxnsByFirstOffset()
        self._verifications: dict[int, VerificationStateEntry] = {}
        self._snapshots = ProducerSnapshots(directory)
        self._last_snapshot_offset = 0

    # Queries.

    @property
    def active_producers(self) -> Mapping[int, ProducerStateEntry]:
        """The producers by id, read-only."""
        return MappingProxyType(self._producers)

    @property
    def is_empty(self) -> bool:
        """Whether there are no producers, and no transactions awaiting the high watermark."""
        return not self._producers and not self._unreplicated

    def last_entry(self, producer_id: int) -> ProducerStateEntry | None:
        """Return a producer's state, or None for an unknown producer."""
        return self._producers.get(producer_id)

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the batch that `header` duplicates: the one of the producer's last five with the same epoch, first and last
        sequence. None if there is no such batch.
        """
        entry = self._producers.get(header.producer_id)
        return None if entry is None else entry.duplicate_of(header)

    @property
    def first_unstable_offset(self) -> LogOffsetMetadata | None:
        """The start of the first transaction that is open, or whose marker is not below the high watermark."""
        undecided, unreplicated = self._ongoing.first, self._unreplicated.first
        if unreplicated is None:
            return None if undecided is None else undecided.first_offset
        if undecided is None:
            return unreplicated.first_offset
        return min(undecided.first_offset, unreplicated.first_offset, key=lambda metadata: metadata.message_offset)

    @property
    def has_undecided(self) -> bool:
        """Whether any transaction is open, or has a marker that is not below the high watermark."""
        return bool(self._ongoing.offsets or self._unreplicated.offsets)

    @property
    def first_undecided_offset(self) -> int | None:
        """The start of the first open transaction; None if no transaction is open."""
        first = self._ongoing.first
        return None if first is None else first.first_offset.message_offset

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether the oldest open transaction has had no record for longer than the maximum transaction time."""
        first = self._ongoing.first
        entry = None if first is None else self._producers.get(first.producer_id)
        if entry is None or entry.last_timestamp <= 0:
            return False
        return now_ms - entry.last_timestamp > self.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    # Appends.

    def prepare_update(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        """Return a producer's part of an append, to be checked and filled; `update` applies it after the write."""
        current = self._producers.get(producer_id)
        if current is None:
            current = ProducerStateEntry(producer_id)
        return ProducerAppendInfo(self.topic_partition, current, origin, self._verifications.get(producer_id))

    def following(self, entry: ProducerStateEntry, last_offset: int, offset_delta: int, timestamp: int) -> ProducerStateEntry:
        """Return a producer's state after a batch that follows its last one, for `records.kernel.PlainAppends`."""
        batch = BatchMetadata(entry.last_sequence + 1 + offset_delta, last_offset, offset_delta, timestamp)
        entry = entry.copy()
        entry.add_batch(entry.producer_epoch, batch)
        if len(self._producers) > AT_ONCE:
            entry.pack()  # See `_put`.
        return entry

    def update(self, info: ProducerAppendInfo) -> None:
        """Apply a producer's part of a written append. Raises InvalidArgumentError without a producer id.

        Data or a marker of a transaction ends the producer's verification, also on a follower: the expected sequence may have
        come through a different leader.
        """
        producer_id = info.entry.producer_id
        if producer_id == NO_PRODUCER_ID:
            raise InvalidArgumentError("an update of the producer state has no producer id", found=producer_id, expected=">= 0")
        self._put(info.entry)
        if info.is_transactional:
            verification = self._verifications.get(producer_id)
            if verification is not None and not (
                info.is_marker and verification.has_epoch_each and verification.epoch == info.entry.producer_epoch
            ):
                del self._verifications[producer_id]
        for txn in info.started_transactions:
            self._ongoing.put(txn)

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """Return the last stable offset after `completed`: the start of another producer's open transaction, otherwise the offset
        after the marker. Call it before `complete_txn`.
        """
        for txn in self._ongoing:
            if txn.producer_id != completed.producer_id:
                return txn.first_offset.message_offset
        return completed.last_offset + 1

    def complete_txn(self, completed: CompletedTxn) -> None:
        """Mark a transaction as decided. Its records are stable once the high watermark passes its marker.

        Raises InvalidArgumentError if the transaction was not open.
        """
        txn = self._ongoing.pop(completed.first_offset)
        if txn is None:
            raise InvalidArgumentError("a marker ends a transaction that was not open", found=completed)
        self._unreplicated.put(txn._replace(last_offset=completed.last_offset))

    def replay(self, header: BatchHeader, marker: EndTxnMarker | None = None) -> tuple[CompletedTxn, int] | None:
        """Process a batch that is already in the log, with or without a producer.

        If the batch completes a transaction, return the transaction and the last stable offset at its marker, for the transaction
        index.
        """
        result = None
        if header.producer_id > NO_PRODUCER_ID:
            info = self.prepare_update(header.producer_id, AppendOrigin.REPLICATION)
            completed = info.append(header, None, marker)
            self.update(info)
            if completed is not None:
                result = completed, self.last_stable_offset(completed)
                self.complete_txn(completed)
        self.map_end_offset = header.last_offset + 1
        return result

    # Changes without an append.

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Drop the decided transactions whose marker is below `high_watermark`."""
        if self._unreplicated:
            self._unreplicated.remove_ended_below(high_watermark)

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Drop the decided transactions below `log_start_offset`, and raise `map_end_offset` to it if necessary. Producers are
        kept.
        """
        self._unreplicated.remove_ended_below(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self._snapshots.latest
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def remove_expired_producers(self, now_ms: int) -> Iterator[None]:
        """Drop producers and verifications without activity for `producer_id_expiration_ms`, some of them in each step."""
        for count, producer_id in enumerate(list(self._producers), 1):
            entry = self._producers.get(producer_id)
            if entry is not None and self._is_expired(entry, now_ms):
                del self._producers[producer_id]
            if count % AT_ONCE == 0:
                yield None
        limit = self.producer_id_expiration_ms
        self._verifications = {
            producer_id: entry for producer_id, entry in self._verifications.items() if now_ms - entry.timestamp < limit
        }

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return entry.current_txn_first_offset < 0 and now_ms - entry.last_timestamp >= self.producer_id_expiration_ms

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Reset the state to the last snapshot in (log_start_offset, log_end_offset]. The caller then replays the batches after
        it.

        Other snapshots are deleted. If the state already ends at `log_end_offset`, it is kept. Raises StorageError.
        """
        for offset in list(self._snapshots.offsets):
            if offset > log_end_offset or offset <= log_start_offset:
                self._snapshots.delete(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        self._clear()
        self._load_from_snapshot(log_start_offset, now_ms)

    def as_of(self, log_start_offset: int, offset: int, now_ms: int) -> ProducerStateManager:
        """Return a new state as of the last snapshot in (log_start_offset, offset]. No file is changed.

        An unreadable snapshot is skipped. Raises StorageError.
        """
        found = ProducerStateManager(
            self.topic_partition,
            self._snapshots.directory,
            self._clock,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
            max_transaction_timeout_ms=self.max_transaction_timeout_ms,
        )
        found.map_end_offset = log_start_offset
        for snapshot in sorted(self._snapshots.offsets, reverse=True):
            if log_start_offset < snapshot <= offset:
                with contextlib.suppress(CorruptSnapshotError):
                    found._load(self._snapshots.read(snapshot), now_ms)
                    found.map_end_offset = snapshot
                    break
        return found

    def take_over(self, other: ProducerStateManager, log_end_offset: int) -> None:
        """Replace the state by `other`, the state at the log's new end, and delete the snapshots above that end. Raises
        StorageError.

        The snapshot written here is not synced: if it is lost, a start uses the previous one.
        """
        for snapshot in [one for one in self._snapshots.offsets if one > log_end_offset]:
            self._snapshots.delete(snapshot)
        self._producers, self._ongoing, self._unreplicated = other._producers, other._ongoing, other._unreplicated
        latest = self._snapshots.latest
        self._last_snapshot_offset = 0 if latest is None else latest
        self.map_end_offset = log_end_offset
        self.take_snapshot(sync=False)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop the whole state, delete all snapshots, and continue at `offset`. Raises StorageError."""
        self._clear()
        for snapshot in list(self._snapshots.offsets):
            self._snapshots.delete(snapshot)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def load_entry(self, entry: ProducerStateEntry) -> None:
        """Add a producer as it was at `map_end_offset`, with its open transaction."""
        self._put(entry)
        if entry.has_open_transaction:
            self._ongoing.put(TxnMetadata(entry.producer_id, LogOffsetMetadata(entry.current_txn_first_offset)))

    def recall(self, producer_id: int, batches: tuple[BatchMetadata, ...]) -> None:
        """Set a producer's latest batches, oldest first. Its snapshot had only the last of these batches."""
        entry = self._producers[producer_id].copy()
        entry.batches = batches
        self._put(entry)

    def _put(self, entry: ProducerStateEntry) -> None:
        self._producers[entry.producer_id] = entry
        if len(self._producers) > AT_ONCE:
            entry.pack()  # The next snapshot is made while clients wait: it should only have to join bytes.

    def _load_from_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        while (latest := self._snapshots.latest) is not None:
            try:
                entries = self._snapshots.read(latest)
            except CorruptSnapshotError as error:
                logger.warning("%s: deleting this snapshot and using the previous one", error)
                self._snapshots.delete(latest)
                continue
            self._load(entries, now_ms)
            self._last_snapshot_offset = self.map_end_offset = latest
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    def _load(self, entries: Iterable[ProducerEntry], now_ms: int) -> None:
        for one in entries:
            entry = ProducerStateEntry.from_snapshot(one)
            if not self._is_expired(entry, now_ms):
                self.load_entry(entry)

    def _clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    # Snapshots.

    def take_snapshot(self, *, sync: bool = True) -> Path | None:
        """Write the state at `map_end_offset` to a snapshot and return its path. Return None if there is a snapshot at or above
        that offset.

        Without `sync` the caller makes the file durable later (`FlushJob`). Raises StorageError.
        """
        if self.map_end_offset <= self._last_snapshot_offset:
            return None
        packed = [entry.packed or entry.pack() for entry in self._producers.values()]
        path = self._snapshots.write(self.map_end_offset, packed, sync=sync)
        self._last_snapshot_offset = self.map_end_offset
        return path

    @property
    def latest_snapshot_offset(self) -> int | None:
        """The highest snapshot's offset; None without snapshots."""
        return self._snapshots.latest

    def remove_stray_snapshots(self, segment_base_offsets: Iterable[int], found: Iterable[str] | None = None) -> None:
        """Delete the snapshots that belong to no segment. The highest snapshot is kept if it is above every segment's base
        offset: a clean shutdown has then written it (spec §9.6). Raises StorageError.

        `found` are the names of the folder's files, if the caller has just listed them.
        """
        bases = set(segment_base_offsets)
        self._snapshots.reload(found)
        strays = [offset for offset in self._snapshots.offsets if offset not in bases]
        if strays and strays[-1] > max(bases, default=-1):
            strays.pop()
        for offset in strays:
            self._snapshots.delete(offset)

    def remove_and_mark_snapshot_for_deletion(self, offset: int) -> Path | None:
        """Rename a snapshot to ``….deleted``. Return the new path, which the caller removes later, or None if the snapshot does
        not exist.
        """
        return self._snapshots.mark_for_deletion(offset)

    def update_parent_dir(self, directory: Path) -> None:
        """Update the paths after the folder has been renamed."""
        self._snapshots.update_parent_dir(directory)

    # Verification of transactions (KIP-890).

    def maybe_create_verification(
        self, producer_id: int, sequence: int, epoch: int, *, has_epoch_each: bool = False
    ) -> VerificationStateEntry:
        """Return a producer's open verification, or a new one, after passing it the sequence of a batch. A verification keeps the
        lowest sequence.
        """
        entry = self._verifications.get(producer_id)
        if entry is None:
            entry = self._verifications[producer_id] = VerificationStateEntry(
                self._clock.now_ms(), sequence, epoch, has_epoch_each=has_epoch_each
            )
        entry.note(sequence, epoch)
        return entry

    def verification(self, producer_id: int) -> VerificationStateEntry | None:
        """Return a producer's open verification, or None."""
        return self._verifications.get(producer_id)

    def clear_verification(self, producer_id: int) -> None:
        """End a producer's verification, because data or a marker of the transaction was written."""
        self._verifications.pop(producer_id, None)
