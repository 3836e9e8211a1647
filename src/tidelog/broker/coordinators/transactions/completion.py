"""Completes a decided transaction: writes its markers to all of its partitions.

| a partition | result |
|---|---|
| appends and commits the marker | is done |
| has been deleted, or has a message format without transactions | is done: it has no transaction to end |
| knows a newer epoch of the producer | is done: the transaction was ended there (by an administrator's WriteTxnMarkers) |
| knows a newer coordinator epoch | is done: another broker is the coordinator and completes it |
| fails for any other reason | is retried while the broker runs, and after its next start |

In a cluster the leaders write the markers, with one request to each broker; a partition without a leader is retried. Many
partitions are handled in slices, with other requests in between. Until the last partition is done, requests for the transactional
id get CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import Final

from tidelog.broker.coordinators.transactions.markers import Markers
from tidelog.broker.coordinators.transactions.transaction import Transaction
from tidelog.broker.core import Core
from tidelog.broker.peers.broker_channels import BrokerChannels
from tidelog.broker.requests.slices import SLICE_S
from tidelog.errors import TidelogError
from tidelog.metadata.records import NO_LEADER
from tidelog.model import TopicPartition, partitions_by_topic
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType
from tidelog.wire.error_codes import ErrorCode, known_code
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

logger = logging.getLogger("tidelog.broker")

AT_ONCE: Final = 200
"""The most partitions per slice. A slice also ends after `SLICE_S`, because a marker that is the first record of its log creates
files, which takes ten times as long as other markers.
"""
RETRY_MS: Final = 500

_DONE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""Error codes with which a partition is done: they are not retried."""


class Completion:
    """Writes the markers of one decided transaction. Once no partition is left, it calls `done` with itself, and calls it again
    later if the result is False.
    """

    def __init__(
        self,
        core: Core,
        markers: Markers,
        transaction: Transaction,
        coordinator_epoch: int | None,
        done: Callable[[Completion], bool],
    ) -> None:
        self.transaction = transaction
        self.is_cancelled = False
        self._core = core
        self._markers = markers
        self._coordinator_epoch = coordinator_epoch
        self._done = done
        self._left = sorted(transaction.partitions, reverse=True)
        self._refused: dict[TopicPartition, ErrorCode] = {}
        self._awaited = 0
        """The number of markers and requests to other brokers whose results are pending."""
        self._is_writing = False
        self._producer = Producer(transaction.producer_id, transaction.producer_epoch)
        self._type = ControlType.COMMIT if transaction.is_commit else ControlType.ABORT

    def go_on(self) -> None:
        """Write markers until all are written, or the slice is used up."""
        if self.is_cancelled:
            return
        self._is_writing = True
        elsewhere: dict[int, list[TopicPartition]] = {}
        until = perf_counter() + SLICE_S
        for count in range(min(AT_ONCE, len(self._left))):
            if count and perf_counter() >= until:
                break
            key = self._left.pop()
            leader = self._leader_elsewhere(key)
            if leader is not None:
                elsewhere.setdefault(leader, []).append(key)
                continue
            version = self.transaction.client_version
            code = self._markers.write(key, self._producer, self._type, self._coordinator_epoch, version)
            if code is ErrorCode.NONE:
                self._awaited += 1
                self._markers.when_written(key, partial(self._answered, key))
            else:
                self._note(key, code)
        for leader, keys in elsewhere.items():
            self._ask(leader, keys)
        self._is_writing = False
        if self._left:
            self._core.blocking.run(_nothing, lambda _: self.go_on())
        else:
            self._end_if_done()

    def _end_if_done(self) -> None:
        if self._awaited or self._left or self._is_writing or self.is_cancelled:
            return
        if self._refused or not self._done(self):
            self._left = sorted(self._refused, reverse=True)
            self._core.delays.call_at_last(RETRY_MS, self.go_on, "transaction markers")

    def _answered(self, key: TopicPartition, code: ErrorCode) -> None:
        self._awaited -= 1
        self._note(key, code)
        self._end_if_done()

    # --- on other brokers

    def _leader_elsewhere(self, key: TopicPartition) -> int | None:
        """Return the broker that leads a partition, or NO_LEADER. Return None if this broker leads it, or it has been deleted."""
        brokers = self._core.peers
        leader = None if brokers is None else brokers.leader_of(key)
        return None if leader == self._core.node_id else leader

    def _ask(self, leader: int, keys: list[TopicPartition]) -> None:
        brokers = self._core.peers
        assert brokers is not None
        if leader == NO_LEADER:
            for key in keys:
                self._note(key, ErrorCode.LEADER_NOT_AVAILABLE)
            return
        self._awaited += 1
        brokers.begin(self._asked(brokers, leader, keys), "transaction markers")

    async def _asked(self, brokers: BrokerChannels, leader: int, keys: list[TopicPartition]) -> None:
        codes: dict[TopicPartition, ErrorCode] = {}
        try:
            answer: WriteTxnMarkersResponse = await brokers.call(leader, self._request(keys))
            for marker in answer.markers:
                for topic in marker.topics:
                    for one in topic.partitions:
                        codes[TopicPartition(topic.name, one.partition_index)] = known_code(one.error_code)
        except TidelogError as error:
            self._markers.retries.failed("broker %d did not write transaction markers, retrying: %s", leader, error)
        finally:
            self._awaited -= 1
            for key in keys:
                # The broker may be about to create the partition. Only the metadata says whether it was deleted.
                code = codes.get(key, ErrorCode.NETWORK_EXCEPTION)
                is_there = brokers.leader_of(key) is not None
                is_behind = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and is_there
                self._note(key, ErrorCode.NOT_LEADER_OR_FOLLOWER if is_behind else code)
            self._end_if_done()

    def _request(self, keys: Iterable[TopicPartition]) -> WriteTxnMarkersRequest:
        epoch = -1 if self._coordinator_epoch is None else self._coordinator_epoch
        marker = WritableTxnMarker(
            self._producer.producer_id,
            self._producer.producer_epoch,
            self._type is ControlType.COMMIT,
            [WritableTxnMarkerTopic(name, numbers) for name, numbers in partitions_by_topic(keys).items()],
            epoch,
            self.transaction.client_version,
        )
        return WriteTxnMarkersRequest([marker])

    # --- results

    def _note(self, key: TopicPartition, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self._refused.pop(key, None)
            return
        is_done = code in _DONE
        if is_done or self._refused.get(key) is not code:
            text = "transactional id %r: could not write the %s marker to %s-%d: %s"
            said = self.transaction.transactional_id, self._type.name, *key, code.name
            if is_done:
                logger.warning(text, *said)
            else:
                self._markers.retries.failed(f"{text}, retrying", *said)
        if is_done:
            self._refused.pop(key, None)
        else:
            self._refused[key] = code


def _nothing() -> None:
    """Do nothing. Waiting for this lets other requests run."""
