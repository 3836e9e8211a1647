"""Appends records to the log, as its leader or as a follower (spec §5.1).

| step | leader | follower |
|---|---|---|
| 1 `append_analysis` | headers, sizes, checksums | headers, checksums, order; batches of a newer epoch are left out |
| 2 offsets, timestamps | `records.validation` assigns them, in place if possible | unchanged; not below the log end |
| 3 sizes | segment.bytes; max.message.bytes again if the records were rebuilt | segment.bytes |
| 4 leader epochs | stored; dropped if a v0 or v1 batch is appended | the same |
| 5 roll | at the log end | at the first batch's offset; for v0 and v1, at the lowest offset that fits the last one |
| 6 producers | duplicates, sequences, epochs | accepted as the leader accepted them |
| 7 write | segment, log end; then producers, aborted transactions, watermarks | the same |

Up to step 6 an error changes nothing of substance (at most an epoch's start, or an empty segment). Any error in step 7 takes the
log offline, because the file and the state in memory must not diverge.

For the usual batch, a leader's steps 1 and 2 are one call (`records.kernel.take_plain_batch`), and all steps are one call
(`records.kernel.PlainAppends`) if only the write remains. bench/append_bench.py measures what an append costs besides its write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, TypeAlias

from tidelog.clock import Clock
from tidelog.config import INT32_MAX, INT64_MAX, LogConfig
from tidelog.errors import (
    DecompressedTooLargeError,
    InvalidOffsetError,
    LogOfflineError,
    RecordBatchTooLargeError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from tidelog.formats.non_blocking_read import blocking
from tidelog.model import NO_LEADER_EPOCH, NO_TIMESTAMP, UNKNOWN_OFFSET
from tidelog.records.batch import LOG_APPEND_TIME, BatchHeader, iter_headers
from tidelog.records.compression import Bytes, Codec
from tidelog.records.kernel import PlainAppends, take_plain_batch
from tidelog.records.patch import set_max_timestamp
from tidelog.records.validation import AppendOrigin, ValidatedRecords, ValidationRules, validate_and_assign_offsets
from tidelog.records.validation_rules import MAX_TIME, MIN_TIME, time_bounds
from tidelog.storage.partition.append.append_analysis import analyze_as_follower, analyze_as_leader, check_size
from tidelog.storage.partition.append.append_info import AppendInfo, AppendWork, append_info_fast, as_duplicate
from tidelog.storage.partition.append.log_append_time import LogAppendTime
from tidelog.storage.partition.availability import Availability
from tidelog.storage.partition.leader_epoch_cache import LeaderEpochCache
from tidelog.storage.partition.local_log import LocalLog
from tidelog.storage.partition.log_flusher import LogFlusher
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.partition.partition_metadata_file import PartitionMetadataFile
from tidelog.storage.partition.watermarks import Watermarks
from tidelog.storage.producers import producer_updates
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.producers.producer_updates import FollowerUpdates, LeaderUpdates
from tidelog.storage.segment.descriptors import is_shortage
from tidelog.storage.segment.log_segment import LogSegment, RollParams

_Taken: TypeAlias = tuple[Sequence[BatchHeader], Bytes, int, AppendWork | None]
"""Headers and bytes to be written, the largest timestamp, and how the records were changed."""


AT_ONCE_BYTES = 2 << 20
"""The most decompressed bytes that a hurried append (`is_hurried`) handles: a few milliseconds of work."""

_CHANGED_AT_ONCE_BYTES = AT_ONCE_BYTES // 64
"""The same limit for records that must be recompressed or converted, in bytes as received."""

_MESSAGES_AT_ONCE_BYTES = AT_ONCE_BYTES // 16
"""The same limit for messages of v0 and v1, which cost more to check."""

_OFFSET = Struct(">q")


@lru_cache(maxsize=1024)  # All partitions of a topic have the same.
def _rules(config: LogConfig, leader_epoch: int) -> tuple[ValidationRules, ValidationRules]:
    """Return a configuration's validation rules, and the same rules with the limits of a hurried append."""
    rules = ValidationRules.from_config(config, leader_epoch)
    return rules, replace(rules, decompressed_max_bytes=min(rules.decompressed_max_bytes, AT_ONCE_BYTES))


class TooMuchAtOnceError(Exception):
    """These records need more work than a hurried append may do. Nothing was done: see `Appends.prepare`."""


class Prepared(NamedTuple):
    """Records after steps 1 and 2 of an append, made for the log end and the validation rules at that time."""

    rules: ValidationRules
    first_offset: int
    append_ms: int
    taken: _Taken | None
    has_own_offsets: bool
    """Whether messages inside compressed ones have absolute offsets (v0), so that their offsets cannot be changed."""


class Appends:
    """Appends records to one log."""

    def __init__(
        self,
        local: LocalLog,
        watermarks: Watermarks,
        producer_state: ProducerStateManager,
        leader_epochs: LeaderEpochCache,
        metadata_file: PartitionMetadataFile,
        availability: Availability,
        flusher: LogFlusher,
        clock: Clock,
        roll: Callable[..., LogSegment],
    ) -> None:
        """`roll` is `PartitionLog.roll`."""
        self.append_time = LogAppendTime(local.segments, lambda: str(local.directory))
        self._local = local
        self._watermarks = watermarks
        self._producer_state = producer_state
        self._leader_epochs = leader_epochs
        self._metadata_file = metadata_file
        self._availability = availability
        self._flusher = flusher
        self._clock = clock
        self._roll_log = roll
        self._adopt(local.config, NO_LEADER_EPOCH)

    def as_leader(
        self,
        records: Bytes,
        leader_epoch: int,
        origin: AppendOrigin,
        is_hurried: bool = False,
        prepared: Prepared | None = None,
    ) -> AppendInfo:
        """Assign offsets and timestamps to the records, and append them. A writable buffer is changed in place if possible.

        A partial batch at the end is left out; without a whole batch nothing happens. If this raises CorruptBatchError,
        RecordValidationError (InvalidTimestampError) with the invalid records, InvalidRecordError, RecordTooLargeError,
        RecordBatchTooLargeError, UnsupportedForMessageFormatError, UnsupportedCompressionTypeError or a ProducerError, nothing
        was appended. Raises LogOfflineError if the disk fails, and at every later append.
        """
        local = self._local
        if self._availability.offline_reason is not None or local.is_closed:
            self._availability.check_writable()
        if local.config is not self._config or leader_epoch != self._rules.leader_epoch:
            self._adopt(local.config, leader_epoch)
        now_ms = self._clock.now_ms()
        append_ms = NO_TIMESTAMP
        if self._stamps:
            append_ms = self.append_time.next_ms(now_ms, monotonic=local.config.append_time_monotonic)
        elif prepared is None:
            info = self.plain_fast(records, leader_epoch, now_ms)
            if info is not None:
                return info
        view = memoryview(records)
        first_offset = local.log_end_offset
        # The control batches that a coordinator may also write are never plain.
        if prepared is not None:
            taken = self._moved(prepared, first_offset, append_ms)
        else:
            taken = self._validate_fast(view, first_offset, now_ms, append_ms)
        if taken is None:
            if prepared is None:
                at_ms = append_ms if self._stamps else now_ms
                if is_hurried:
                    taken = self._validate_soon(view, first_offset, at_ms, origin)
                else:
                    taken = _validate(view, self._rules, self._config.max_message_bytes, first_offset, at_ms, origin)
            if taken is None:
                return AppendInfo.nothing(self._watermarks.log_start_offset)
        headers, data, max_timestamp, work = taken
        info = append_info_fast(
            first_offset, headers[-1].last_offset, max_timestamp, append_ms, self._watermarks.log_start_offset, len(data), work
        )
        written = self._write(headers, data, info, origin, now_ms)
        if self._stamps and not written.is_duplicate:
            self.append_time.on_leader_append(append_ms)
        return written

    def plain_fast(self, records: Bytes, leader_epoch: int, now_ms: int) -> AppendInfo | None:
        """Do all steps for a usual batch if only the write remains. Otherwise change nothing and return None."""
        plain = self._plain
        fields = None if plain is None else plain.append(records, leader_epoch, now_ms)
        return None if fields is None else tuple.__new__(AppendInfo, fields)

    def _validate_fast(self, records: memoryview, first_offset: int, now_ms: int, append_ms: int) -> _Taken | None:
        """Do steps 1 and 2 for a plain batch without errors. Return None for any other batch."""
        if not self._takes_plain or records.readonly or len(records) > self._config.max_message_bytes:
            return None
        rules = self._rules
        low, high = (MIN_TIME, MAX_TIME) if self._takes_any_time else time_bounds(rules, now_ms)
        fields = take_plain_batch(records, first_offset, rules.leader_epoch, low, high, rules.is_compacted, append_ms)
        if fields is None:
            return None
        header = tuple.__new__(BatchHeader, fields)
        return [header], records, header.max_timestamp, None

    def prepare(self, records: Bytes, leader_epoch: int, origin: AppendOrigin) -> Callable[[], Prepared]:
        """Return a function that does steps 1 and 2 on any thread.

        This is for owners that serve many clients. With `is_hurried`, an append that needs more than a few milliseconds before
        its write raises TooMuchAtOnceError. The append is then repeated, with the result of this function as `prepared`. The
        caller must not change `records` meanwhile. The function raises what `as_leader` raises for the records.
        """
        local = self._local
        if local.config is not self._config or leader_epoch != self._rules.leader_epoch:
            self._adopt(local.config, leader_epoch)
        rules, max_message_bytes, first_offset = self._rules, self._config.max_message_bytes, local.log_end_offset
        now_ms = self._clock.now_ms()
        append_ms = now_ms if self._stamps else NO_TIMESTAMP

        def work() -> Prepared:
            # A copy: if the log has changed meanwhile, everything is repeated with the original records.
            taken = _validate(memoryview(bytearray(records)), rules, max_message_bytes, first_offset, now_ms, origin)
            has_own_offsets = taken is not None and taken[0][0].magic == 0 and any(header.is_compressed for header in taken[0])
            return Prepared(rules, first_offset, append_ms, taken, has_own_offsets)

        return work

    def _moved(self, prepared: Prepared, first_offset: int, append_ms: int) -> _Taken | None:
        """Update offsets and append time of prepared records. Raises TooMuchAtOnceError if they must be prepared again."""
        taken = prepared.taken
        if prepared.rules is not self._rules:
            raise TooMuchAtOnceError  # The topic's configuration has changed.
        if taken is None or (prepared.first_offset == first_offset and prepared.append_ms == append_ms):
            return taken
        if prepared.has_own_offsets and prepared.first_offset != first_offset:
            raise TooMuchAtOnceError
        headers, data, max_timestamp, work = taken
        moved = first_offset - prepared.first_offset
        for header in headers:
            before = header.base_offset if header.magic == 2 else header.last_offset
            _OFFSET.pack_into(data, header.position, before + moved)
            if self._stamps and header.magic:
                set_max_timestamp(data, LOG_APPEND_TIME, append_ms, header.position)  # type: ignore[arg-type]
                max_timestamp = append_ms
        return list(iter_headers(data)), data, max_timestamp, work

    def _validate_soon(self, records: memoryview, first_offset: int, now_ms: int, origin: AppendOrigin) -> _Taken | None:
        """Call `_validate`, unless it would take long: then raise TooMuchAtOnceError."""
        rules, size = self._rules, len(records)
        if size > _CHANGED_AT_ONCE_BYTES:
            for header in iter_headers(records):
                if header.magic != rules.magic or rules.target_codec not in (None, header.codec):
                    raise TooMuchAtOnceError
                if header.magic < 2 and size > _MESSAGES_AT_ONCE_BYTES:
                    raise TooMuchAtOnceError
                break
        limit_bytes = self._at_once_rules.decompressed_max_bytes
        try:
            return _validate(records, self._at_once_rules, self._config.max_message_bytes, first_offset, now_ms, origin)
        except DecompressedTooLargeError:
            if limit_bytes < rules.decompressed_max_bytes:
                raise TooMuchAtOnceError from None
            raise

    def as_follower(self, records: Bytes, leader_epoch: int | None) -> AppendInfo:
        """Append batches as received from the leader of `leader_epoch`. Offsets, epochs, timestamps and bytes are not changed.

        Batches with a newer epoch, and all batches after them, are left out (KAFKA-18723); None accepts all epochs. Raises
        CorruptBatchError, OffsetsOutOfOrderError, UnexpectedAppendOffsetError for a batch below the log end, InvalidOffsetError
        for offsets too far apart for one segment, RecordBatchTooLargeError, and LogOfflineError.
        """
        local = self._local
        self._availability.check_writable()
        if local.config is not self._config:
            self._adopt(local.config, self._rules.leader_epoch)
        view = memoryview(records)
        headers = analyze_as_follower(view, leader_epoch)
        if not headers:
            return AppendInfo.nothing(self._watermarks.log_start_offset)
        first, last = headers[0], headers[-1]
        first_offset = first.base_offset if first.magic >= 2 else UNKNOWN_OFFSET
        lowest = first_offset if first.magic >= 2 else first.last_offset
        if lowest < local.log_end_offset:
            raise UnexpectedAppendOffsetError(
                "a follower's append begins below the log end",
                path=local.directory,
                found=lowest,
                expected=f"at least {local.log_end_offset}",
                first_offset=first.base_offset,
                last_offset=last.last_offset,
            )
        if last.last_offset - lowest > INT32_MAX or last.last_offset == INT64_MAX:
            raise InvalidOffsetError(
                "the offsets of a follower's append are too far apart for one segment",
                path=local.directory,
                found=last.last_offset,
                expected=f"at most {min(lowest + INT32_MAX, INT64_MAX - 1)}",
            )
        max_timestamp = max(header.max_timestamp for header in headers)
        info = append_info_fast(
            first_offset, last.last_offset, max_timestamp, NO_TIMESTAMP, self._watermarks.log_start_offset, last.end_position
        )
        written = self._write(headers, view[: last.end_position], info, AppendOrigin.REPLICATION, self._clock.now_ms())
        self.append_time.on_follower_append(headers)
        return written

    def _adopt(self, config: LogConfig, leader_epoch: int) -> None:
        """Cache what appends need from a new configuration or leader epoch."""
        self._config = config
        self._max_segment_ms = config.max_segment_ms
        rules, self._at_once_rules = _rules(config, leader_epoch)
        self._rules = rules
        self._stamps = rules.timestamp_type == LOG_APPEND_TIME
        self._takes_any_time = self._stamps or rules.before_max_ms == rules.after_max_ms == MAX_TIME
        self._takes_plain = rules.magic == 2 and rules.target_codec in (None, Codec.NONE)
        self._plain: PlainAppends | None = None
        if self._takes_plain and not self._stamps:
            states = self._producer_state, self._leader_epochs, self._metadata_file
            log = self._local, self._watermarks, *states, self._availability
            self._plain = PlainAppends(log, leader_epoch, rules.before_max_ms, rules.after_max_ms, rules.is_compacted)

    def _write(
        self, headers: Sequence[BatchHeader], data: Bytes, info: AppendInfo, origin: AppendOrigin, now_ms: int
    ) -> AppendInfo:
        """Do steps 3 to 7. Return `info`, or the result for a duplicate.

        May read from the disk: the first append after a start may need the end of an index, or a segment's first batch.
        """
        with blocking():
            return self._written(headers, data, info, origin, now_ms)

    def _written(
        self, headers: Sequence[BatchHeader], data: Bytes, info: AppendInfo, origin: AppendOrigin, now_ms: int
    ) -> AppendInfo:
        local, watermarks, producer_state = self._local, self._watermarks, self._producer_state
        config = local.config
        size = info.size_bytes
        last_offset = info.last_offset
        if size > config.segment_bytes:
            raise RecordBatchTooLargeError(
                "the records are larger than segment.bytes",
                path=local.directory,
                found=size,
                expected=f"at most {config.segment_bytes}",
            )
        try:
            if self._metadata_file.is_dirty:
                self._flusher.write_soon()
            if self._rules.magic >= 2:
                self._note_epochs(headers)
            segment = local.segments.active
            if (
                segment.should_roll_fast(size, info.max_timestamp, last_offset, config.segment_bytes, self._max_segment_ms)
                is None
            ):
                roll_params = RollParams(
                    self._max_segment_ms, config.segment_bytes, info.max_timestamp, last_offset, size, now_ms
                )
                if segment.should_roll(roll_params):
                    segment = self._roll(segment, roll_params, info.first_offset)
        except LogOfflineError:
            raise
        except OSError as error:
            raise self._refused(error) from error
        updates = None
        for header in headers:
            if header.producer_id >= 0:
                updates = self._analyze_producers(headers, memoryview(data), origin, segment)
                if updates.duplicate is not None:
                    return as_duplicate(info, updates.duplicate)
                break
        try:
            try:
                local.append(last_offset, headers, data)
            except StorageError as error:
                raise self._refused(error) from error
            watermarks.on_log_end_moved()
            if updates is not None:
                updates.apply(producer_state, segment)
            producer_state.map_end_offset = last_offset + 1
            if updates is not None:
                watermarks.update_first_unstable_offset()
            if last_offset - local.recovery_point >= config.flush_messages - 1:
                self._flusher.flush_soon()
        except (LogOfflineError, _OutOfFilesError):
            raise
        except Exception as error:
            raise self._availability.go_offline("append", error) from error
        except BaseException as error:
            # Interrupted between the write and the update of the state.
            self._availability.go_offline("append was interrupted", error)
            raise
        return info

    def _analyze_producers(
        self, headers: Sequence[BatchHeader], data: memoryview, origin: AppendOrigin, segment: LogSegment
    ) -> LeaderUpdates | FollowerUpdates:
        if origin is AppendOrigin.REPLICATION:
            return producer_updates.analyze_as_follower(headers, data)
        # A leader's records of a producer are a single batch.
        where = LogOffsetMetadata(headers[0].base_offset, segment.base_offset, segment.size_bytes)
        return producer_updates.analyze_as_leader(self._producer_state, headers[0], data, origin, where)

    def _note_epochs(self, headers: Sequence[BatchHeader]) -> None:
        """Store the leader epochs that begin with these batches. A batch without an epoch invalidates all stored epochs."""
        epochs = self._leader_epochs
        for header in headers:
            if header.magic < 2:
                if not epochs.is_empty:
                    epochs.clear_soon()
            elif header.leader_epoch >= 0 and epochs.assign_fast(header.leader_epoch, header.base_offset) is None:
                epochs.assign_soon(header.leader_epoch, header.base_offset)
                self._flusher.write_soon()

    def _roll(self, segment: LogSegment, params: RollParams, first_offset: int) -> LogSegment:
        fits = segment.size_bytes <= params.max_segment_bytes - params.messages_size
        waited_ms = segment.time_waited_for_roll(params.now_ms, params.max_timestamp_in_messages)
        by_time = fits and segment.size_bytes > 0 and waited_ms > params.max_segment_ms - segment.roll_jitter_ms
        expected = first_offset if first_offset >= 0 else params.max_offset_in_messages - INT32_MAX
        return self._roll_log(expected, by_time=by_time)

    def _refused(self, error: OSError) -> StorageError:
        """Return the error to raise for a step without side effects: if descriptors are short, the log stays online."""
        if not is_shortage(error):
            return self._availability.go_offline("append", error)
        text = "cannot append: the process has too many open files, retry later"
        return _OutOfFilesError(text, path=self._local.directory)


class _OutOfFilesError(StorageError):
    """Nothing was appended, because the process has too many open files. The append may be retried."""


def _validate(
    records: memoryview, rules: ValidationRules, max_message_bytes: int, first_offset: int, now_ms: int, origin: AppendOrigin
) -> _Taken | None:
    """Do steps 1 and 2 for any records. Return None if they contain no whole batch."""
    headers = analyze_as_leader(records, origin, max_message_bytes)
    if not headers:
        return None
    whole = records[: headers[-1].end_position]
    if whole.readonly:
        whole = memoryview(bytearray(whole))
    validated = validate_and_assign_offsets(whole, headers, rules, base_offset=first_offset, now_ms=now_ms, origin=origin)
    if validated.size_may_have_changed:
        for header in validated.headers:
            check_size(header, max_message_bytes)
    return validated.headers, validated.data, validated.max_timestamp, _work(headers, validated)


def _work(came: Sequence[BatchHeader], stored: ValidatedRecords) -> AppendWork | None:
    """Return how the batches in `came` were changed before they were `stored`; None if they are uncompressed and unchanged."""
    is_decompressed = came[0].is_compressed
    if not stored.size_may_have_changed:
        return AppendWork(True, False, False) if is_decompressed else None
    header = stored.headers[0]
    return AppendWork(is_decompressed, header.is_compressed, header.magic != came[0].magic)
