"""Produce responses that wait until the records are on disk (`flush.messages`).

Kafka flushes the log within the append. Here the append requests a flush, and another thread waits for the disk. Records that are
appended during a flush share the next one. As in Kafka, the producer is answered and consumers get the records after the flush.
If the disk fails, the producer gets KAFKA_STORAGE_ERROR.

Use only on the event loop's thread. `Core` owns an instance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidelog.broker.requests.request import Outcome, Request
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.produce import PartitionProduceResponse, ProduceResponse


class Flushes:
    """Responses that wait for the disk. `pending` is the number of appends that are not on disk yet."""

    def __init__(self, manager: LogManager) -> None:
        self.pending = 0
        self._manager = manager

    def appended(self, log: PartitionLog, flushed: Callable[[PartitionLog, LogOffsetMetadata], None]) -> None:
        """Call `flushed` with the log and its current end offset once all records below that offset are on disk. If the disk
        fails, `flushed` is not called.
        """
        self.pending += 1
        log.when_flushed(partial(self._flushed, log, log.log_end_offset_metadata, flushed))

    def _flushed(
        self,
        log: PartitionLog,
        end: LogOffsetMetadata,
        flushed: Callable[[PartitionLog, LogOffsetMetadata], None],
        has_failed: bool,
    ) -> None:
        self.pending -= 1
        if not has_failed:
            flushed(log, end)

    def hold(self, request: Request, response: ProduceResponse) -> ProduceResponse | Outcome:
        """Return the response if its records are on disk. Otherwise return LATER, and send the response once they are."""
        waiting = _Held(request, response)
        logs = self._manager.logs
        for topic in response.responses:
            for one in topic.partition_responses:
                log = logs.get((topic.name, one.index))  # type: ignore[call-overload]
                if log is not None and log.is_flush_awaited and not one.error_code:
                    waiting.wait_for(log, one)
        return Outcome.LATER if waiting.left else response


class _Held:
    """A response that waits until certain logs are flushed."""

    def __init__(self, request: Request, response: ProduceResponse) -> None:
        self.left = 0
        self._request = request
        self._response = response

    def wait_for(self, log: PartitionLog, answer: PartitionProduceResponse) -> None:
        """Wait until the current content of `log` is on disk. If the flush fails, store the error in `answer`."""
        self.left += 1
        log.when_flushed(partial(self._flushed, answer))

    def _flushed(self, answer: PartitionProduceResponse, has_failed: bool) -> None:
        if has_failed:
            answer.error_code, answer.base_offset = ErrorCode.KAFKA_STORAGE_ERROR, -1
            answer.log_append_time_ms = answer.log_start_offset = -1
        self.left -= 1
        if not self.left:
            self._request.respond(self._response)
