"""A cluster's brokers, the leaders of partitions, and connections to them.

| request | answered by |
|---|---|
| metadata, and anything that any broker knows | the first to answer: open connections, other brokers, the bootstrap servers |
| anything that only a partition's leader knows | the leader; if it changes, metadata is read again, until the timeout |

A connection is lent to one user at a time and goes back only after all its responses have been received. A caller that stops in
the middle of a fetch therefore does not disturb others. A cluster is not thread-safe.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar

from tidelog.client.connections.addresses import BrokerAddress, config_of, parse_addresses, secured
from tidelog.client.connections.connection import Connection
from tidelog.client.connections.failures import RETRIABLE, RetryTimer, error_for
from tidelog.errors import BrokerError, BrokerUnreachableError, TidelogError, UnknownTopicOrPartitionError
from tidelog.model import TopicPartition
from tidelog.near_names import near_topics
from tidelog.security.access import Access
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic

M = TypeVar("M", bound=Message)
Key = TypeVar("Key")

METADATA_VERSION = 12
NO_CREATION_VERSION = 4

TIMEOUT_MS = 30_000
"""How long one call may take, including retries. A broker may be unreachable for that time."""

CREATION_MS = 10_000
"""How long to wait for a broker to create a missing topic. A broker that will not create it answers with the same error code."""

NO_LEADER = -1


class Leader(NamedTuple):
    """A partition's leader and leader epoch; both -1 if unknown."""

    node_id: int
    epoch: int


class PartitionState(NamedTuple):
    """Metadata of a partition."""

    leader: Leader
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicState(NamedTuple):
    """Metadata of a topic; `topic_id` is zero if the broker has none."""

    topic_id: uuid.UUID
    is_internal: bool
    partitions: Mapping[int, PartitionState]


class Cluster:
    """The brokers and leaders of one cluster. `timeout_ms` limits each call, including retries; `access` is the configuration of
    its connections.
    """

    def __init__(
        self, addresses: Sequence[BrokerAddress], *, timeout_ms: int, client_id: str, access: Access | None = None
    ) -> None:
        self.addresses = tuple(addresses)
        self.timeout_ms = timeout_ms
        self.client_id = client_id
        self.access = Access() if access is None else access
        self.brokers: dict[int, BrokerAddress] = {}
        self.cluster_id: str | None = None
        self._topics: dict[str, TopicState] = {}
        self._idle: dict[BrokerAddress, list[Connection]] = {}

    @classmethod
    def at(cls, addresses: str, client_id: str, *, timeout_ms: int = TIMEOUT_MS) -> Self:
        """Return the cluster that the bootstrap servers `addresses` belong to, `host:port` separated by commas, without
        connecting.

        Raises InvalidArgumentError.
        """
        access = Access(config_of(addresses))
        return cls(parse_addresses(addresses), timeout_ms=timeout_ms, client_id=client_id, access=access)

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses))

    @property
    def place(self) -> str:
        """The addresses with the connection's configuration, to open the cluster again. Use `str(cluster)` in messages."""
        return secured(str(self), self.access.config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reach(self) -> Self:
        """Connect to one of the brokers now, so that a wrong address is reported early. Raises BrokerUnreachableError."""
        with self.connection_to_any():
            return self

    def close(self) -> None:
        """Close all connections that are not lent. A connection on loan is closed when it is returned."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    # --- Connections ---

    @contextlib.contextmanager
    def connection_to(self, address: BrokerAddress) -> Iterator[Connection]:
        """Lend a connection to the broker at `address`. Raises BrokerUnreachableError, ProtocolError."""
        connection = self._take(address)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if connection.is_idle:
            self._idle.setdefault(address, []).append(connection)
        else:
            connection.close()

    @contextlib.contextmanager
    def connection_to_any(self) -> Iterator[Connection]:
        """Lend a connection to any reachable broker. Raises BrokerUnreachableError, which names all unreachable brokers."""
        failures: list[BrokerUnreachableError] = []
        reachable = dict.fromkeys([*(a for a, idle in self._idle.items() if idle), *self.brokers.values(), *self.addresses])
        for address in reachable:
            try:
                connection = self._take(address)
            except BrokerUnreachableError as error:
                failures.append(error)
                continue
            self._idle.setdefault(address, []).append(connection)
            with self.connection_to(address) as lent:
                yield lent
            return
        if len(failures) == 1:
            raise failures[0]
        raise BrokerUnreachableError("; ".join(str(failure) for failure in failures))

    def _take(self, address: BrokerAddress) -> Connection:
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            if connection.is_idle:
                return connection
            connection.close()
        try:
            return Connection(address, timeout_ms=self.timeout_ms, client_id=self.client_id, access=self.access)
        except BrokerUnreachableError as error:
            if address not in self.addresses:
                # The usual reason: the host in advertised.listeners is a different machine when resolved here.
                error.message += f"; {self} advertises this address"
            raise

    def ask_any(self, message: Message, response: type[M], *, newest: int, oldest: int = 0) -> M:
        """Send a request to any broker that answers; retry until the timeout."""
        timer = RetryTimer(self.timeout_ms)
        while True:
            try:
                with self.connection_to_any() as connection:
                    version = connection.version(type(message), newest=newest, oldest=oldest)
                    return connection.ask(message, version, response)
            except BrokerUnreachableError as error:
                timer.wait(error)

    # --- Metadata ---

    def refresh(self, topics: Iterable[str] | None, *, create: bool = False) -> None:
        """Read the metadata of these topics again, None for all topics. With `create`, brokers may create missing topics.

        Topics that no longer exist are removed from the known metadata. Raises BrokerUnreachableError, and the errors for codes
        that are not retriable.
        """
        timer = RetryTimer(min(self.timeout_ms, CREATION_MS) if create else self.timeout_ms)
        wanted = None if topics is None else list(dict.fromkeys(topics))
        while True:
            try:
                found, passing = self._read_metadata(wanted, create)
            except BrokerUnreachableError as error:
                timer.wait(error)
                continue
            if wanted is None:
                self._topics = found
            else:
                for topic in wanted:
                    self._topics.pop(topic, None)
                self._topics.update(found)
            if passing is None:
                return
            timer.wait(passing)

    def _read_metadata(self, wanted: list[str] | None, create: bool) -> tuple[dict[str, TopicState], TidelogError | None]:
        with self.connection_to_any() as connection:
            version = connection.version(MetadataRequest, newest=METADATA_VERSION)
            request = MetadataRequest(allow_auto_topic_creation=create)
            # Before v4 a broker may create requested topics, so callers that must not create any request all topics.
            if wanted is not None and (create or version >= NO_CREATION_VERSION):
                request.topics = [MetadataRequestTopic(name=name) for name in wanted]
            elif version == 0:
                request.topics = []  # v0 has no null: an empty list means all.
            else:
                request.topics = None
            response = connection.ask(request, version, MetadataResponse)
            place = connection.address
        self.brokers = {broker.node_id: BrokerAddress(broker.host, broker.port) for broker in response.brokers}
        self.cluster_id = response.cluster_id
        found: dict[str, TopicState] = {}
        passing: TidelogError | None = None
        for topic in response.topics:
            code, name = topic.error_code, topic.name or ""
            if wanted is not None and name not in wanted:
                continue
            if code == ErrorCode.NONE:
                found[name] = _topic_state(topic)
            elif code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create:
                continue
            elif code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                passing = UnknownTopicOrPartitionError(f"no topic {name!r}, and the broker does not create it", path=str(place))
            elif code in RETRIABLE:
                passing = error_for(code, f"metadata of topic {name}", place)
            elif wanted is not None:
                raise error_for(code, f"metadata of topic {name}", place)
        return found, passing

    def topics(self) -> dict[str, TopicState]:
        """Return all topics by name, from current metadata."""
        self.refresh(None)
        return dict(sorted(self._topics.items()))

    def topics_named(self, names: Iterable[str]) -> dict[str, TopicState]:
        """Return current metadata of the given topics that exist, by name. Raises BrokerError for a topic that the user is not
        authorized to describe.
        """
        wanted = list(names)
        self.refresh(wanted)
        return {name: self._topics[name] for name in wanted if name in self._topics}

    def topic(self, name: str, *, create: bool = False) -> TopicState:
        """Return the metadata of a topic, reading it only if it is not yet known. Raises UnknownTopicOrPartitionError."""
        return self._topics.get(name) or self.topic_now(name, create=create)

    def topic_now(self, name: str, *, create: bool = False) -> TopicState:
        """Return the current metadata of a topic. Raises UnknownTopicOrPartitionError."""
        self.refresh([name], create=create)
        state = self._topics.get(name)
        if state is None:
            raise UnknownTopicOrPartitionError(f"no topic {name!r}{self._near(name)}", path=str(self))
        return state

    def _near(self, name: str) -> str:
        try:
            return near_topics(name, self.topics())
        except TidelogError:  # This request only looks for a hint: its error must not replace the original one.
            return ""

    def leader(self, key: TopicPartition) -> Leader:
        """Return a partition's leader according to the known metadata; (-1, -1) if it has none. Raises
        UnknownTopicOrPartitionError.
        """
        partitions = self.topic(key.topic).partitions
        state = partitions.get(key.partition)
        if state is None:
            # The partition may have been added meanwhile. If it was not, it is unknown.
            partitions = self.topic_now(key.topic).partitions
            state = partitions.get(key.partition)
        if state is None:
            known = ", ".join(map(str, sorted(partitions)))
            raise UnknownTopicOrPartitionError(
                f"no partition {key.partition} of topic {key.topic!r}, only {known}", path=str(self)
            )
        return state.leader if state.leader.node_id in self.brokers else Leader(NO_LEADER, -1)

    def leader_address(self, key: TopicPartition) -> BrokerAddress:
        """Return the address of a partition's leader. Raises BrokerError if there is no leader, UnknownTopicOrPartitionError."""
        leader = self.leader(key)
        if leader.node_id == NO_LEADER:
            raise no_leader(key, self)
        return self.brokers[leader.node_id]

    def ask_leaders(
        self,
        keys: Iterable[TopicPartition],
        response: type[M],
        make: Callable[[Connection, list[TopicPartition]], tuple[Message, int]],
        read: Callable[[M, list[TopicPartition], BrokerAddress], Mapping[TopicPartition, TidelogError]],
        *,
        is_repeatable: bool = True,
    ) -> None:
        """Send requests to the leaders of the partitions, in parallel, until every partition has an answer.

        `make` returns a request for some partitions of one leader, and the request's version. `read` gets the response and
        returns the partitions to retry, each with the error to raise at the timeout; it raises errors that are not retriable.
        After a lost connection it is unknown whether the request was processed, so the request is retried only if
        `is_repeatable`.
        """
        pending = list(dict.fromkeys(keys))
        timer = RetryTimer(self.timeout_ms)
        while pending:
            failed: dict[TopicPartition, TidelogError] = {}
            by_leader: dict[BrokerAddress, list[TopicPartition]] = {}
            unknown = {key.topic for key in pending} - self._topics.keys()
            if unknown:
                self.refresh(unknown)
            for key in pending:
                leader = self.leader(key)
                if leader.node_id == NO_LEADER:
                    failed[key] = no_leader(key, self)
                else:
                    by_leader.setdefault(self.brokers[leader.node_id], []).append(key)
            with contextlib.ExitStack() as lent:
                asked: list[tuple[Connection, list[TopicPartition]]] = []
                for address, its_keys in by_leader.items():
                    try:
                        connection = lent.enter_context(self.connection_to(address))
                    except BrokerUnreachableError as error:
                        failed.update(dict.fromkeys(its_keys, error))
                        continue
                    message, version = make(connection, its_keys)
                    try:
                        connection.send(message, version, response)
                    except BrokerUnreachableError as error:
                        if not is_repeatable:
                            raise
                        failed.update(dict.fromkeys(its_keys, error))
                    else:
                        asked.append((connection, its_keys))
                for connection, its_keys in asked:
                    try:
                        answer = connection.receive(response)
                    except BrokerUnreachableError as error:
                        if not is_repeatable:
                            raise
                        failed.update(dict.fromkeys(its_keys, error))
                    else:
                        failed.update(read(answer, its_keys, connection.address))
            pending = [key for key in pending if key in failed]
            if pending:
                timer.wait(failed[pending[0]])
                self.refresh({key.topic for key in pending})


def no_leader(key: TopicPartition, place: object) -> BrokerError:
    """Return the error for a partition without a leader."""
    return BrokerError(
        f"partition {key.partition} of topic {key.topic!r} has no leader",
        error_code=ErrorCode.LEADER_NOT_AVAILABLE,
        path=str(place),
    )


def _topic_state(topic: MetadataResponseTopic) -> TopicState:
    return TopicState(
        topic.topic_id,
        topic.is_internal,
        {
            partition.partition_index: PartitionState(
                Leader(partition.leader_id, partition.leader_epoch), tuple(partition.replica_nodes), tuple(partition.isr_nodes)
            )
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        },
    )
