"""Records into the log, as its leader or as a follower (spec §5.1): the path that every byte takes.

| step | leader | follower |
|---|---|---|
| 1 `append_analysis` | headers, sizes, checksums | headers, checksums, order; batches of a newer epoch are left out |
| 2 offsets, timestamps | `records.validation` assigns them, in place where it can | as they come, from the log end on |
| 3 sizes | segment.bytes; max.message.bytes again where the records were rebuilt | segment.bytes |
| 4 leader epochs | noted, or forgotten where a batch of v0 or v1 comes | the same |
| 5 roll | at the log end | at the first batch's offset; v0 and v1 do not tell it: as low as the last one allows |
| 6 producers | duplicates, sequences, epochs | taken as the leader took them |
| 7 write | segment, log end; then producers, aborted transactions, watermarks | the same |

Up to step 6 a refusal changes nothing but what is true anyway (an epoch's start, an empty segment). What goes wrong in step 7
takes the log offline, whatever it is: the file and what is known about it must not part.

`PartitionLog` owns one. The usual append, one batch without a producer id, must cost little: see bench/append_bench.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.config import INT32_MAX, LogConfig
from tidelog.errors import LogOfflineError, RecordBatchTooLargeError, UnexpectedAppendOffsetError
from tidelog.records.batch import LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader
from tidelog.records.compression import Bytes
from tidelog.records.validation import AppendOrigin, ValidationRules, validate_and_assign_offsets
from tidelog.storage import producer_updates
from tidelog.storage.append_analysis import analyze_as_follower, analyze_as_leader, check_size
from tidelog.storage.append_info import UNKNOWN_OFFSET, AppendInfo
from tidelog.storage.log_append_time import LogAppendTime
from tidelog.storage.log_state import LogState
from tidelog.storage.producer_updates import FollowerUpdates, LeaderUpdates
from tidelog.storage.segment import LogSegment, RollParams


class Appends:
    """Appends to one log."""

    def __init__(self, state: LogState) -> None:
        self.append_time = LogAppendTime(state.segments, lambda: str(state.directory))
        self._state = state
        self._config: LogConfig | None = None
        self._rules: ValidationRules | None = None

    def as_leader(self, records: Bytes, leader_epoch: int, origin: AppendOrigin) -> AppendInfo:
        """See `PartitionLog.append_as_leader`."""
        state = self._state
        local = state.local
        if state.offline_reason is not None or local.is_closed:
            state.check_writable()
        config = local.config
        view = memoryview(records)
        headers = analyze_as_leader(view, origin, config.max_message_bytes)
        if not headers:
            return AppendInfo.nothing(state.log_start_offset)
        end = headers[-1].position + headers[-1].size
        if end != len(view):
            view = view[:end]
        if view.readonly:
            view = memoryview(bytearray(view))
        rules = self._rules
        if rules is None or config is not self._config or rules.leader_epoch != leader_epoch:
            self._config = config
            rules = self._rules = ValidationRules.from_config(config, leader_epoch)
        now_ms = state.clock.now_ms()
        stamps = rules.timestamp_type == LOG_APPEND_TIME
        append_ms = self.append_time.next_ms(now_ms, monotonic=config.append_time_monotonic) if stamps else now_ms
        first_offset = local.log_end_offset
        validated = validate_and_assign_offsets(view, headers, rules, base_offset=first_offset, now_ms=append_ms, origin=origin)
        if validated.size_may_have_changed:
            for header in validated.headers:
                check_size(header, config.max_message_bytes)
        info = AppendInfo(
            first_offset,
            validated.last_offset,
            validated.max_timestamp,
            append_ms if stamps else NO_TIMESTAMP,
            state.watermarks.log_start_offset,
            len(validated.data),
        )
        written = self._write(validated.headers, validated.data, info, origin, now_ms)
        if stamps and not written.is_duplicate:
            self.append_time.on_leader_append(append_ms)
        return written

    def as_follower(self, records: Bytes, leader_epoch: int | None) -> AppendInfo:
        """See `PartitionLog.append_as_follower`."""
        state = self._state
        state.check_writable()
        view = memoryview(records)
        headers = analyze_as_follower(view, leader_epoch)
        if not headers:
            return AppendInfo.nothing(state.log_start_offset)
        first, last = headers[0], headers[-1]
        first_offset = first.base_offset if first.magic >= 2 else UNKNOWN_OFFSET
        lowest = first_offset if first.magic >= 2 else first.last_offset
        if lowest < state.log_end_offset:
            raise UnexpectedAppendOffsetError(
                "a follower's append begins below the log end",
                path=state.directory,
                found=lowest,
                expected=f"at least {state.log_end_offset}",
                first_offset=first.base_offset,
                last_offset=last.last_offset,
            )
        max_timestamp = max(header.max_timestamp for header in headers)
        info = AppendInfo(first_offset, last.last_offset, max_timestamp, NO_TIMESTAMP, state.log_start_offset, last.end_position)
        written = self._write(headers, view[: last.end_position], info, AppendOrigin.REPLICATION, state.clock.now_ms())
        self.append_time.on_follower_append(headers)
        return written

    def _write(
        self, headers: Sequence[BatchHeader], data: Bytes, info: AppendInfo, origin: AppendOrigin, now_ms: int
    ) -> AppendInfo:
        """Steps 3 to 7; returns `info`, or what a duplicate has instead."""
        state = self._state
        local = state.local
        config = local.config
        size = len(data)
        if size > config.segment_bytes:
            raise RecordBatchTooLargeError(
                "records larger than segment.bytes",
                path=state.directory,
                found=size,
                expected=f"at most {config.segment_bytes}",
            )
        try:
            if state.metadata_file.is_dirty:
                state.metadata_file.maybe_flush()
            self._note_epochs(headers, config)
            segment = local.segments.active
            roll_params = RollParams(
                config.max_segment_ms, config.segment_bytes, info.max_timestamp, info.last_offset, size, now_ms
            )
            if segment.should_roll(roll_params):
                segment = self._roll(segment, roll_params, info.first_offset)
        except LogOfflineError:
            raise
        except OSError as error:
            raise state.go_offline("append", error) from error
        updates = None
        for header in headers:
            if header.producer_id >= 0:
                updates = self._analyze_producers(headers, memoryview(data), origin, segment)
                if updates.duplicate is not None:
                    old = updates.duplicate
                    return info._replace(
                        first_offset=old.first_offset,
                        last_offset=old.last_offset,
                        log_append_time=old.timestamp,
                        size_bytes=0,
                        is_duplicate=True,
                    )
                break
        try:
            local.append(info.last_offset, headers, data)
            state.watermarks.on_log_end_moved()
            if updates is not None:
                updates.apply(state.producer_state, segment)
            state.producer_state.map_end_offset = info.last_offset + 1
            if updates is not None:
                state.watermarks.update_first_unstable_offset()
            if local.log_end_offset - local.recovery_point >= config.flush_messages:
                state.flush()
        except LogOfflineError:
            raise
        except Exception as error:
            raise state.go_offline("append", error) from error
        except BaseException as error:
            # Interrupted between the file and what is known about it.
            state.go_offline("append was interrupted", error)
            raise
        return info

    def _analyze_producers(
        self, headers: Sequence[BatchHeader], data: memoryview, origin: AppendOrigin, segment: LogSegment
    ) -> LeaderUpdates | FollowerUpdates:
        if origin is AppendOrigin.REPLICATION:
            return producer_updates.analyze_as_follower(headers, data)
        state = self._state.producer_state
        return producer_updates.analyze_as_leader(state, headers, data, origin, segment.base_offset, segment.size_bytes)

    def _note_epochs(self, headers: Sequence[BatchHeader], config: LogConfig) -> None:
        """Note the leader epochs that begin with these batches; a batch that knows none makes all of them worthless."""
        epochs = self._state.leader_epochs
        if config.magic < 2:
            return
        for header in headers:
            if header.magic < 2:
                if not epochs.is_empty:
                    epochs.clear_and_flush()
            elif header.leader_epoch >= 0:
                epochs.assign(header.leader_epoch, header.base_offset)

    def _roll(self, segment: LogSegment, params: RollParams, first_offset: int) -> LogSegment:
        fits = segment.size_bytes <= params.max_segment_bytes - params.messages_size
        waited_ms = segment.time_waited_for_roll(params.now_ms, params.max_timestamp_in_messages)
        by_time = fits and segment.size_bytes > 0 and waited_ms > params.max_segment_ms - segment.roll_jitter_ms
        expected = first_offset if first_offset >= 0 else params.max_offset_in_messages - INT32_MAX
        return self._state.roll(expected, by_time=by_time)
