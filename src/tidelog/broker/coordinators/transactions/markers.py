"""Transaction markers: control batches, COMMIT or ABORT, that a coordinator writes to end a transaction in a log."""

from __future__ import annotations

import logging

from tidelog.broker.coordinators.groups.groups import Groups
from tidelog.broker.coordinators.transactions.transaction import EPOCH_EACH
from tidelog.broker.core import Core
from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.partitions.leadership import Committed, Leadership
from tidelog.errors import LogOfflineError, TidelogError
from tidelog.model import OFFSETS_TOPIC, TopicPartition
from tidelog.records.builder import Producer, build_end_txn_marker
from tidelog.records.control import ControlType
from tidelog.records.validation import AppendOrigin
from tidelog.wire.error_codes import ErrorCode, error_code_of

logger = logging.getLogger("tidelog.broker")


class Markers:
    """Writes markers into the logs that this broker leads."""

    def __init__(self, core: Core, leadership: Leadership, groups: Groups) -> None:
        self._core = core
        self._leadership = leadership
        self._groups = groups
        self.retries = RetryLog(logger)
        """Limits the log lines about markers that are retried."""

    def write(
        self,
        key: TopicPartition,
        producer: Producer,
        control_type: ControlType,
        coordinator_epoch: int | None = None,
        transaction_version: int = 0,
    ) -> ErrorCode:
        """End a producer's transaction in a log of this broker. Return NONE or an error code.

        As in Kafka, a marker is written even if the producer has no open transaction, because the marker fences older epochs. In
        a partition of ``__consumer_offsets`` the marker commits or drops the transaction's offsets.

        The coordinator epoch fences former coordinators. A standalone broker is the only coordinator. It uses the epoch that the
        log already has, or 0, so that a broker that takes over the folder and starts with epoch 0 is not fenced.
        """
        refusal = self._leadership.refusal(key)
        if refusal:
            return refusal
        try:
            log = self._core.manager.log(*key)
            if log.config.magic < 2:
                return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
            if producer.producer_epoch < 0:
                return ErrorCode.UNKNOWN_SERVER_ERROR
            known = log.producer_state.last_entry(producer.producer_id)
            if (
                transaction_version >= EPOCH_EACH
                and known is not None
                and known.has_open_transaction
                and known.producer_epoch >= producer.producer_epoch
            ):
                return ErrorCode.INVALID_PRODUCER_EPOCH  # A late duplicate: the next transaction is open (KIP-1228).
            if coordinator_epoch is None:
                coordinator_epoch = 0 if known is None else max(known.coordinator_epoch, 0)
            batch = build_end_txn_marker(
                0, self._core.clock.now_ms(), control_type, producer, coordinator_epoch=coordinator_epoch
            )
            code = self._leadership.check_in_sync(log)
            if code:
                return code
            log.append_as_leader(batch, self._leadership.epoch_of(key), origin=AppendOrigin.COORDINATOR)
        except LogOfflineError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        except TidelogError as error:
            self.retries.failed("%s-%d: could not write a %s marker: %s", *key, control_type.name, error)
            return error_code_of(error)
        self._leadership.appended(log)
        if key.topic == OFFSETS_TOPIC:
            self._groups.complete_transaction(key.partition, producer.producer_id, control_type is ControlType.COMMIT)
        return ErrorCode.NONE

    def when_written(self, key: TopicPartition, done: Committed) -> None:
        """Call `done` once, possibly before this method returns: with NONE when a written marker is committed, or with an
        error code.
        """
        log = self._core.manager.logs.get(key)
        if log is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        cluster = self._core.config.cluster
        timeout_ms = None if cluster is None else cluster.request_timeout_ms
        if self._leadership.when_committed(log, log.log_end_offset, timeout_ms, done):
            done(ErrorCode.NONE)
