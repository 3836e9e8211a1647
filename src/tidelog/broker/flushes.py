"""Producers' answers that wait until the records are on the disk (`flush.messages`), while everybody else is served.

Kafka forces a log to the disk within the append. Here the append asks for it, another thread waits for the disk, and what is
appended meanwhile goes with the next flush, all of it together. As in Kafka, the producer is answered, and consumers are given
the records, after it. Where the disk refuses, the producer is answered KAFKA_STORAGE_ERROR.

`Core` owns one; belongs to the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidelog.broker.server.request import Outcome, Request
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.produce import PartitionProduceResponse, ProduceResponse


class Flushes:
    """Operations that wait for the disk. `pending` counts appends that are not on the disk: with none there is nothing to look
    at.
    """

    def __init__(self, manager: LogManager) -> None:
        self.pending = 0
        self._manager = manager

    def appended(self, log: PartitionLog, flushed: Callable[[PartitionLog, LogOffsetMetadata], None]) -> None:
        """Have `flushed` called with the log, and its end as it is now, once that is on the disk; not where the disk refuses."""
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
        """Return the response, or arrange for it once its records are on the disk."""
        waiting = _Held(request, response)
        logs = self._manager.logs
        for topic in response.responses:
            for one in topic.partition_responses:
                log = logs.get((topic.name, one.index))  # type: ignore[call-overload]
                if log is not None and log.is_flush_awaited and not one.error_code:
                    waiting.wait_for(log, one)
        return Outcome.LATER if waiting.left else response


class _Held:
    """A response that waits for some logs."""

    def __init__(self, request: Request, response: ProduceResponse) -> None:
        self.left = 0
        self._request = request
        self._response = response

    def wait_for(self, log: PartitionLog, answer: PartitionProduceResponse) -> None:
        """Have the response wait for what `log` holds now; `answer` says so if that fails."""
        self.left += 1
        log.when_flushed(partial(self._flushed, answer))

    def _flushed(self, answer: PartitionProduceResponse, has_failed: bool) -> None:
        if has_failed:
            answer.error_code, answer.base_offset = ErrorCode.KAFKA_STORAGE_ERROR, -1
            answer.log_append_time_ms = answer.log_start_offset = -1
        self.left -= 1
        if not self.left:
            self._request.respond(self._response)
