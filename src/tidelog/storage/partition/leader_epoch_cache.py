"""The leader epochs of one partition, written through to ``leader-epoch-checkpoint`` (KIP-101; spec §14).

`formats.leader_epochs` has the rules; this owns the file.

===============  =====================================================================================
assign           writes and syncs the file before it returns, but only if the epochs changed: no entry is ever missing
assign_soon      changes memory at once; the caller runs `to_be_written` before it reports the epoch's first batch as being on
                 disk. After a crash before that, recovery finds the epoch in the batch
truncations      change memory at once; the file is written by `defer` if there is one, otherwise at once.
                 Entries that a crash leaves behind are harmless: loading truncates again
===============  =====================================================================================

Not thread-safe. `PartitionLog`, the loader and recovery use it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, Protocol

from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.formats.names import LEADER_EPOCH_CHECKPOINT
from tidelog.storage.partition.held_directory import HeldDirectory

Defer = Callable[[Callable[[], None]], object]


class EpochsWrite(Protocol):
    """Writes the checkpoint file, through the open folder `held` if it is given."""

    def __call__(self, held: HeldDirectory | None = None) -> None: ...


class LeaderEpochCache:
    """Leader epochs by their first offset, oldest first."""

    def __init__(self, directory: Path, *, entries: Iterable[EpochEntry] | None = None, defer: Defer | None = None) -> None:
        """Read the checkpoint in a partition's `directory` (or the named file); without a file there are no epochs.

        `entries` replace the file's content, which is then not read. `defer` gets the function that writes the file after a
        truncation, to be called soon. Raises CorruptCheckpointError, StorageError.
        """
        is_file = directory.name == LEADER_EPOCH_CHECKPOINT
        self.path = directory if is_file else directory / LEADER_EPOCH_CHECKPOINT
        self._defer = defer
        self._epochs = LeaderEpochs.read(self.path) if entries is None else LeaderEpochs(entries)
        self._guard = threading.Lock()
        """Held while the file is written."""
        self._is_waiting = False
        self._version = self._written = 0
        """Versions of the epochs in memory and in the file."""

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """The epochs, oldest first."""
        return tuple(self._epochs.entries)

    @property
    def is_empty(self) -> bool:
        return not self._epochs.entries

    @property
    def latest(self) -> EpochEntry | None:
        """The newest epoch's entry."""
        return self._epochs.latest

    @property
    def earliest(self) -> EpochEntry | None:
        """The oldest epoch's entry."""
        return self._epochs.earliest

    @property
    def latest_epoch(self) -> int | None:
        """The newest epoch; None if there are no epochs."""
        latest = self._epochs.latest
        return None if latest is None else latest.epoch

    @property
    def previous_epoch(self) -> int | None:
        """The epoch before the newest one; None if there is none."""
        return self._epochs.entries[-2].epoch if len(self._epochs.entries) > 1 else None

    def entry(self, epoch: int) -> EpochEntry | None:
        """Return the entry of `epoch`, or None if there is none."""
        return next((entry for entry in self._epochs.entries if entry.epoch == epoch), None)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return an epoch at or below `epoch`, and its end offset: see `LeaderEpochs.end_offset_for`."""
        return self._epochs.end_offset_for(epoch, log_end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch of `offset`, or None for an offset below the first epoch."""
        return self._epochs.epoch_for_offset(offset)

    def assign_fast(self, epoch: int, start_offset: int) -> Literal[False] | None:
        """Return False if `assign` would return False and change neither memory nor file. Return None if `assign` must be
        called.
        """
        entries = self._epochs.entries
        if not entries or self.is_unwritten:
            return None
        latest = entries[-1]
        return False if latest.epoch == epoch and latest.start_offset <= start_offset else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Store durably that `epoch` begins at `start_offset`. Return False if that was known already.

        Contradicting entries at the end are dropped. Raises InvalidArgumentError for negative values, StorageError.
        """
        is_new = self._epochs.assign(epoch, start_offset)
        self._version += is_new
        if self.is_unwritten:
            self._write()
        return is_new

    @property
    def is_unwritten(self) -> bool:
        """Whether the file lacks epochs that are in memory."""
        return self._version != self._written

    def assign_soon(self, epoch: int, start_offset: int) -> None:
        """Do what `assign` does, but only in memory; the caller must run the result of `to_be_written`."""
        self._version += self._epochs.assign(epoch, start_offset)

    def to_be_written(self) -> EpochsWrite | None:
        """Return a function that updates the file on any thread and raises StorageError; None if the file is up to date.

        To run the function on another thread, open the folder as `held` when you call `to_be_written`, and pass it to the
        function.
        """
        self._is_waiting = False
        if not self.is_unwritten:
            return None
        epochs, path, version = LeaderEpochs(self._epochs.entries), self.path, self._version

        def write(held: HeldDirectory | None = None) -> None:
            with self._guard:
                if version <= self._written:
                    return
                if held is not None:
                    held.replace_file(path.name, epochs.encode())
                elif path.parent.is_dir():
                    epochs.write(path)
                else:
                    return
                self._written = version

        return write

    def assign_all(self, entries: Iterable[EpochEntry]) -> bool:
        """Store several epochs durably, with one write; return False if all were known. Raises what `assign` raises."""
        is_new = False
        for epoch, start_offset in entries:
            is_new |= self._epochs.assign(epoch, start_offset)
        self._version += is_new
        if self.is_unwritten:
            self._write()
        return is_new

    def replace_all(self, entries: Iterable[EpochEntry]) -> None:
        """Replace all epochs, durably. Raises StorageError."""
        self._epochs = LeaderEpochs(entries)
        self._version += 1
        self._write()

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that start at or after `end_offset`; a negative offset changes nothing. Raises StorageError."""
        latest = self._epochs.latest
        if latest is not None and 0 <= end_offset <= latest.start_offset:
            self._epochs.truncate_from_end(end_offset)
            self._version += 1
            self._write_soon()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that end at or before `start_offset`; the epoch that contains `start_offset` then starts there. Raises
        StorageError.
        """
        earliest = self._epochs.earliest
        if earliest is not None and earliest.start_offset < start_offset:
            self._epochs.truncate_from_start(start_offset)
            self._version += 1
            self._write_soon()

    def drop_above(self, epoch: int) -> None:
        """Drop the epochs above `epoch`. Raises StorageError."""
        kept = [entry for entry in self._epochs.entries if entry.epoch <= epoch]
        if len(kept) < len(self._epochs.entries):
            self._epochs = LeaderEpochs(kept)
            self._version += 1
            self._write_soon()

    def cut_to(self, log_start_offset: int, log_end_offset: int) -> None:
        """Drop epochs outside the log. The file is not written until the next epoch is assigned, or until `flush`.

        This is for loading: a start with thousands of partitions must not write thousands of files. Kafka stores an epoch at the
        end of each log that it leads; that epoch is dropped here.
        """
        before = list(self._epochs.entries)
        self._epochs.truncate_from_end(log_end_offset)
        self._epochs.truncate_from_start(log_start_offset)
        self._version += self._epochs.entries != before

    def clear_and_flush(self) -> None:
        """Drop all epochs, in memory and in the file. Raises StorageError."""
        self._epochs.clear()
        self._version += 1
        self._write()

    def clear_soon(self) -> None:
        """Drop all epochs. The file is written as after a truncation. Raises StorageError."""
        self._epochs.clear()
        self._version += 1
        self._write_soon()

    def clear(self) -> None:
        """Drop all epochs in memory; the file is not changed."""
        self._epochs.clear()

    def update_parent_dir(self, directory: Path) -> None:
        """Update the path after the folder has been renamed."""
        self.path = directory / LEADER_EPOCH_CHECKPOINT

    def defer_to(self, defer: Defer) -> None:
        """From now on, pass the function that writes the file after a truncation to `defer`, instead of calling it."""
        self._defer = defer

    def flush(self) -> None:
        """Write pending changes; no-op if the folder is gone. Raises StorageError."""
        write = self.to_be_written()
        if write is not None:
            write()

    def _write(self) -> None:
        version = self._version  # If it fails, the next assignment retries.
        with self._guard:
            self._epochs.write(self.path)
            self._written = version

    def _write_soon(self) -> None:
        if self._defer is None:
            self._write()
        elif not self._is_waiting:
            self._is_waiting = True
            self._defer(self.flush)
