"""The special targets of ListOffsets, and the answers that need no search (KIP-79, KIP-734, KIP-405; spec §13).

================  =====  =================================================================================
target            value  answer
================  =====  =================================================================================
EARLIEST           -2    the log start offset
LATEST             -1    the end for this reader, e.g. the log end offset or the last stable offset
MAX_TIMESTAMP      -3    the first record with the largest timestamp: needs a search
EARLIEST_LOCAL     -4    the first offset in the local log; without tiered storage the same as EARLIEST
LATEST_TIERED      -5    the last offset in remote storage; -1 if there is none
a time (ms)       >= 0   the first record, by offset, with a timestamp at or after it: needs a search
================  =====  =================================================================================

`time_search` (for any folder) and `storage.partition.offset_lookup` (for a log that this process writes) use this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tidelog.errors import UnsupportedForMessageFormatError, UnsupportedVersionError
from tidelog.formats.leader_epochs import EpochEntry
from tidelog.formats.paths.file_path import FilePath
from tidelog.model import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, NO_LEADER_EPOCH, UNKNOWN_OFFSET


class Epochs(Protocol):
    """The leader epochs of a log."""

    @property
    def latest(self) -> EpochEntry | None: ...

    @property
    def earliest(self) -> EpochEntry | None: ...

    def epoch_for_offset(self, offset: int) -> int | None: ...


class Searched(Protocol):
    """The interface of a log that can be searched, whether it was opened for reading or by its owner."""

    @property
    def directory(self) -> FilePath: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def leader_epochs(self) -> Epochs: ...

    @property
    def message_format(self) -> int: ...


class Place(NamedTuple):
    """A target's offset and leader epoch. An offset of -1 means that the target does not exist."""

    offset: int
    leader_epoch: int


class TieredOffsets(NamedTuple):
    """The first offset of the local part of a tiered log, and the last offset in remote storage, -1 if none is there
    (KIP-405).
    """

    local_start: int
    last_tiered: int


def check_target(target: int) -> None:
    """Raise UnsupportedVersionError if `target` is an unknown negative value."""
    if target < LATEST_TIERED:
        raise UnsupportedVersionError("unknown special timestamp", found=target, expected="-5..-1 or a time")


def place_of(target: int, log: Searched, end_offset: Callable[[], int], tiered: TieredOffsets | None = None) -> Place | None:
    """Return a target's offset, or None if the target needs a search. `end_offset` is called only for LATEST.

    Raises UnsupportedForMessageFormatError in a v0 topic for anything but EARLIEST and LATEST.
    """
    if target == LATEST:
        latest = log.leader_epochs.latest
        return Place(end_offset(), NO_LEADER_EPOCH if latest is None else latest.epoch)
    if target != EARLIEST and log.message_format == 0:
        raise UnsupportedForMessageFormatError(
            "message format v0 has no timestamps: only earliest and latest can be found", path=log.directory
        )
    if tiered is not None and target in (EARLIEST_LOCAL, LATEST_TIERED):
        offset = tiered.local_start if target == EARLIEST_LOCAL else tiered.last_tiered
        epoch = log.leader_epochs.epoch_for_offset(offset)
        return Place(offset, NO_LEADER_EPOCH if epoch is None else epoch)
    if target in (EARLIEST, EARLIEST_LOCAL):
        earliest = log.leader_epochs.earliest
        known = earliest is not None and earliest.start_offset <= log.log_start_offset
        return Place(log.log_start_offset, earliest.epoch if known and earliest else NO_LEADER_EPOCH)
    return Place(UNKNOWN_OFFSET, NO_LEADER_EPOCH) if target == LATEST_TIERED else None
