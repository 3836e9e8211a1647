"""Leader epochs: the start offset of each leader's records (KIP-101; spec §14), stored in ``leader-epoch-checkpoint``.

The file is a checkpoint (see `checkpoints`) with lines ``epoch start_offset``, both ascending. The newest epoch extends to the
log end. The rules here are plain functions on a list; only `read` and `write` use the file.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import CorruptCheckpointError, InvalidArgumentError
from tidelog.formats.checkpoints import encode_lines, parse_lines, parse_number, read_checkpoint, replace_file
from tidelog.formats.paths.file_path import FilePath

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

_ONE_LEADER = b"0\n1\n0 0\n"
"""The most common content: a partition that never changed its leader."""


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of one log, oldest first."""

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self.entries: list[EpochEntry] = []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    @classmethod
    def read(cls, path: FilePath) -> LeaderEpochs:
        """Read a checkpoint; without a file there are no epochs. Raises CorruptCheckpointError."""
        data = read_checkpoint(path)
        if data == _ONE_LEADER:
            return cls((EpochEntry(0, 0),))
        entries = []
        for line, fields in enumerate(parse_lines(data, path), start=3):
            if len(fields) != 2:
                raise CorruptCheckpointError(
                    f"line {line} of the checkpoint has the wrong number of fields",
                    path=path,
                    found=len(fields),
                    expected="2 fields",
                )
            epoch, start_offset = (parse_number(field, path, line) for field in fields)
            if epoch < 0 or start_offset < 0:
                raise CorruptCheckpointError(
                    f"line {line} has an invalid leader epoch", path=path, found=f"{epoch} {start_offset}", expected=">= 0"
                )
            entries.append(EpochEntry(epoch, start_offset))
        return cls(entries)

    def write(self, path: Path) -> None:
        """Replace the checkpoint."""
        replace_file(path, self.encode())

    def encode(self) -> bytes:
        """Return the checkpoint's content."""
        return encode_lines(f"{entry.epoch} {entry.start_offset}" for entry in self.entries)

    @property
    def latest(self) -> EpochEntry | None:
        """The newest epoch."""
        return self.entries[-1] if self.entries else None

    @property
    def earliest(self) -> EpochEntry | None:
        """The oldest epoch."""
        return self.entries[0] if self.entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` begins at `start_offset`. Return False if this was already recorded.

        Entries that contradict this are dropped from the tail: entries of the same or a later epoch, and entries that start at or
        after `start_offset`.
        Raises InvalidArgumentError for negative values.
        """
        if epoch < 0 or start_offset < 0:
            raise InvalidArgumentError("invalid leader epoch", found=f"{epoch} at {start_offset}", expected=">= 0")
        latest = self.latest
        if latest is not None and epoch == latest.epoch and start_offset >= latest.start_offset:
            return False
        while self.entries and (self.entries[-1].epoch >= epoch or self.entries[-1].start_offset >= start_offset):
            self.entries.pop()
        self.entries.append(EpochEntry(epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the last epoch at or below `epoch`, and its end offset (spec §14).

        Below the oldest epoch, return `epoch` and the offset at which the oldest epoch starts. Return (-1, -1) if there are no
        epochs, or if `epoch` is -1 or above the newest epoch.
        """
        latest = self.latest
        if epoch == UNDEFINED_EPOCH or latest is None:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == latest.epoch:
            return epoch, log_end_offset
        above = bisect.bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if above == len(self.entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        found = self.entries[above - 1].epoch if above else epoch
        return found, self.entries[above].start_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch in which `offset` was written, None if the offset is below the first epoch."""
        above = bisect.bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[above - 1].epoch if above else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that start at or after `end_offset`; a negative offset changes nothing."""
        if end_offset >= 0:
            self.entries = [entry for entry in self.entries if entry.start_offset < end_offset]

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs that end at or before `start_offset`. The epoch that contains this offset then starts at it."""
        below = [entry for entry in self.entries if entry.start_offset <= start_offset]
        if start_offset >= 0 and below:
            self.entries = [EpochEntry(below[-1].epoch, start_offset), *self.entries[len(below) :]]

    def clear(self) -> None:
        """Remove every epoch."""
        self.entries = []
