"""Cutting a log: what a follower does whose leader has something else at its end (spec §5.6).

| `truncate_to(target)` | |
|---|---|
| target ≥ log end | only an epoch that begins there goes |
| target < the first segment's base | everything goes; the log starts over at the target |
| else | batches from the one that holds the target on; segments above it; their snapshots; epochs; the log start comes down |

Producers are those of the records that stay: from the last snapshot at or below the target, and the batches since. `PartitionLog`
calls these.
"""

from __future__ import annotations

import logging

from tidelog.errors import InvalidArgumentError
from tidelog.storage.loading.producer_rebuild import rebuild_producer_state
from tidelog.storage.partition.log_state import LogState

logger = logging.getLogger("tidelog.storage")


def truncate_to(state: LogState, target_offset: int) -> bool:
    """Cut the log so that it ends at `target_offset`; False if it ends there or before already.

    Raises InvalidArgumentError for a negative offset, LogOfflineError.
    """
    if target_offset < 0:
        raise InvalidArgumentError("a negative offset to truncate to", path=state.directory, found=target_offset)
    with state.writing("truncate"):
        if target_offset >= state.log_end_offset:
            # The leader may have another epoch at the log end than we have noted.
            state.leader_epochs.truncate_from_end(state.log_end_offset)
            return False
        first = state.segments.first
        if first is not None and first.base_offset > target_offset:
            truncate_fully_and_start_at(state, target_offset)
            return True
        logger.info("%s: truncated from %d to %d", state.directory, state.log_end_offset, target_offset)
        removed = state.local.truncate_to(target_offset)
        state.delete_producer_snapshots(removed)
        state.leader_epochs.truncate_from_end(target_offset)
        marks = state.watermarks
        marks.log_start_offset = min(marks.log_start_offset, target_offset)
        _rebuild_producers(state, target_offset)
        marks.on_log_end_moved()
        marks.update_first_unstable_offset()
        return True


def truncate_fully_and_start_at(state: LogState, offset: int, log_start_offset: int | None = None) -> None:
    """Remove everything and go on at `offset`; the log start becomes that, or `log_start_offset`. Raises LogOfflineError."""
    if offset < 0:
        raise InvalidArgumentError("a negative offset to start at", path=state.directory, found=offset)
    with state.writing("truncate"):
        logger.info("%s: everything is removed, it goes on at %d", state.directory, offset)
        state.local.truncate_fully_and_start_at(offset)
        state.leader_epochs.clear_and_flush()
        state.producer_state.truncate_fully_and_start_at(offset)
        marks = state.watermarks
        marks.log_start_offset = offset if log_start_offset is None else log_start_offset
        _rebuild_producers(state, offset)
        marks.update_high_watermark(state.local.log_end_offset_metadata)
        marks.update_first_unstable_offset()


def _rebuild_producers(state: LogState, end_offset: int) -> None:
    rebuild_producer_state(
        state.producer_state,
        state.segments,
        state.log_start_offset,
        end_offset,
        magic=state.config.magic,
        now_ms=state.clock.now_ms(),
    )
