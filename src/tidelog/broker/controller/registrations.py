"""Registers brokers, fences those without heartbeats (KIP-631), and changes the leaders of their partitions accordingly.

| event | records |
|---|---|
| a broker registers | its registration, fenced; partitions that it led have no leader |
| a fenced broker that has caught up and can serve sends a heartbeat | it is unfenced, and leads its partitions, in new epochs |
| a broker asks to be fenced or to shut down; its session or process ends | it is fenced, and leads nothing |

A partition has one replica, so it has a leader exactly while its broker is unfenced.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Final

from tidelog.broker.handling.access import Access, at_top, cluster, whole
from tidelog.broker.loop.timers import Timers
from tidelog.metadata.records import (
    NO_LEADER,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from tidelog.security.acl import Operation
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.steps import Steps
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Message
from tidelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

SESSION_MS = 9_000
"""How long a broker stays unfenced without a heartbeat, in ms: Kafka's default of ``broker.session.timeout.ms``."""

_FENCED, _UNFENCED = 1, -1
_SHUTTING_DOWN = 1


def _now_ms() -> int:
    """Return the time in ms of a monotonic clock: sessions do not depend on the log's clock."""
    return monotonic_ns() // 1_000_000


class _Session:
    __slots__ = ("last_ms", "offset")

    def __init__(self, last_ms: int) -> None:
        self.last_ms = last_ms
        self.offset = -1
        """The offset of the registration's record; -1 until it is on disk."""


class Registrations:
    """The brokers registered in `store`'s metadata. `expected` are the ids that may register."""

    def __init__(self, store: MetadataStore, timers: Timers, run: Callable[[Steps[None]], None]) -> None:
        """`run` runs steps that no request has started."""
        self.expected: frozenset[int] = frozenset()
        self._run = run
        self._store = store
        self._timers = timers
        self._sessions: dict[int, _Session] = {}

    def alive(self) -> list[int]:
        """Return the ids of the brokers that are not fenced, in ascending order."""
        return sorted(one.broker_id for one in self._store.image.brokers.values() if not one.fenced)

    def is_current(self, broker_id: int, broker_epoch: int) -> ErrorCode:
        """Return NONE if a broker is registered with this epoch, otherwise the error code for its request."""
        broker = self._store.image.brokers.get(broker_id)
        if broker is None:
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        return ErrorCode.NONE if broker.broker_epoch == broker_epoch else ErrorCode.STALE_BROKER_EPOCH

    # --- registration

    def registration(self, request: BrokerRegistrationRequest) -> Steps[BrokerRegistrationResponse]:
        """Register a broker. Raises StorageError."""
        store, broker_id = self._store, request.broker_id
        before = store.image.brokers.get(broker_id)
        if broker_id not in self.expected or len(request.log_dirs) != 1:
            return BrokerRegistrationResponse(error_code=ErrorCode.INVALID_REGISTRATION)
        if before is not None and before.incarnation_id != request.incarnation_id and not before.fenced:
            return BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        if before is not None and before.incarnation_id == request.incarnation_id:
            epoch = before.broker_epoch
        else:
            epoch = max(store.end_offset, *(one.broker_epoch for one in store.image.brokers.values()), 0) + 1
        session = self._sessions[broker_id] = _Session(_now_ms())
        yield store.append(
            [
                RegisterBrokerRecord(
                    broker_id,
                    incarnation_id=request.incarnation_id,
                    broker_epoch=epoch,
                    end_points=[BrokerEndpoint(one.name, one.host, one.port, one.security_protocol) for one in request.listeners],
                    features=[
                        BrokerFeature(one.name, one.min_supported_version, one.max_supported_version) for one in request.features
                    ],
                    rack=request.rack,
                    fenced=True,
                    log_dirs=request.log_dirs,
                ),
                *self._leaving(broker_id),
            ]
        )
        session.offset = store.end_offset - 1
        self._timers.call_later(SESSION_MS, lambda: self._look(broker_id, epoch))
        return BrokerRegistrationResponse(broker_epoch=epoch)

    # --- heartbeats

    def heartbeat(self, request: BrokerHeartbeatRequest) -> Steps[BrokerHeartbeatResponse]:
        """Answer a heartbeat, and fence or unfence its broker. Raises StorageError."""
        broker_id = request.broker_id
        code = self.is_current(broker_id, request.broker_epoch)
        session = self._sessions.get(broker_id)
        if code or session is None:
            return BrokerHeartbeatResponse(error_code=code or ErrorCode.STALE_BROKER_EPOCH)
        session.last_ms = _now_ms()
        broker = self._store.image.brokers[broker_id]
        has_caught_up = 0 <= session.offset <= request.current_metadata_offset
        if request.want_shut_down:
            yield from self.fencing(broker_id, is_shutting_down=True)
        elif request.want_fence:
            yield from self.fencing(broker_id)
        elif broker.fenced and has_caught_up:
            yield self._store.append(
                [
                    BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, fenced=_UNFENCED),
                    *(PartitionChangeRecord(number, topic_id, leader=broker_id) for topic_id, number in self._led_by(broker_id)),
                ]
            )
        return BrokerHeartbeatResponse(
            is_caught_up=has_caught_up,
            is_fenced=self._store.image.brokers[broker_id].fenced,
            should_shut_down=request.want_shut_down,
        )

    def fencing(self, broker_id: int, *, is_shutting_down: bool = False) -> Steps[None]:
        """Fence a broker, so that its partitions lose their leader. No-op if the broker is fenced. Raises StorageError."""
        broker = self._store.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return
        change = BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, fenced=_FENCED)
        if is_shutting_down:
            change.in_controlled_shutdown = _SHUTTING_DOWN
        yield self._store.append([change, *self._leaving(broker_id)])

    def _look(self, broker_id: int, epoch: int) -> None:
        """Fence a broker if its session has ended; otherwise check again at the earliest time when the session may end."""
        session = self._sessions.get(broker_id)
        if session is None or self.is_current(broker_id, epoch):
            return
        left_ms = session.last_ms + SESSION_MS - _now_ms()
        if left_ms > 0:
            self._timers.call_later(left_ms, lambda: self._look(broker_id, epoch))
            return
        self._run(self.fencing(broker_id))
        self._timers.call_later(SESSION_MS, lambda: self._look(broker_id, epoch))

    # --- leaders

    def _leaving(self, broker_id: int) -> Iterator[Message]:
        """Yield the records that take the leadership of all partitions from a broker."""
        for topic in self._store.image.topics.values():
            for number, partition in topic.partitions.items():
                if partition.leader == broker_id:
                    yield PartitionChangeRecord(number, topic.topic_id, leader=NO_LEADER)

    def _led_by(self, broker_id: int) -> Iterator[tuple[uuid.UUID, int]]:
        """Yield the partitions, as topic id and number, that have no leader and whose replica is on the broker."""
        for topic in self._store.image.topics.values():
            for number, partition in topic.partitions.items():
                if partition.leader == NO_LEADER and partition.replicas == [broker_id]:
                    yield topic.topic_id, number


BROKERS: Final = " brokers"
"""The job name under which changes of brokers run one at a time. It is not a valid topic name."""


def of_brokers(response: Callable[..., Message]) -> Access:
    """Return the check for a request that needs CLUSTER_ACTION on the cluster. `response` builds the response to a refused
    request.
    """
    return whole(cluster(Operation.CLUSTER_ACTION), refused=at_top(response))
