"""A broker inside a Python process: `tidelog.Broker`. For tests, notebooks, and programs that embed a broker.

    with tidelog.Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

| argument | |
|---|---|
| `data_dir` | the data folder, created if missing; without it a temporary folder, which is removed at the end |
| `port` | a port on 127.0.0.1; 0 means any free port, which stays the same after `stop` and `start` |
| `clock` | by default the machine's; with a `ManualClock`, `advance` runs everything that has become due before it returns |
| `tls` | True: a TLS listener with a generated certificate (`server.secured.quick_security`) |
| `users` | names and passwords: a SASL listener with PLAIN and SCRAM; with `tls` it is SASL_SSL |
| `read_only` | serves an existing folder without changing a byte of it; requests that would change it are refused (`read_only`) |
| all others | broker or topic properties under Kafka's names: `log_retention_ms=1000` or `**{"log.retention.ms": 1000}` |

Defaults are Kafka's, except that `group.initial.rebalance.delay.ms` is 0, so that a group starts at once.

| for tests, without a client | |
|---|---|
| `create_topic("orders", 3, retention_ms=1000)`, `delete_topic("orders")` | |
| `produce("orders", b"value", key=b"key")`, `produce("orders", [b"a", b"b"])` | returns offsets; creates a missing topic |
| `records("orders")` | the topic's records |
| `fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", times=2)` | the next two such requests fail, without effect |

The broker runs on its own thread with its own event loop, so it serves clients while the program does other work, although both
share the GIL. Methods may be called from any thread.

`stop` shuts down cleanly. `kill` leaves the folder as a killed process does, so that a test can observe the recovery. After
either, `start` starts the broker again on the same folder. A `with` block starts and stops the broker. A running broker that is
garbage-collected, or that still runs when the program ends, is stopped with a ResourceWarning. After a fork the broker keeps
running only in the process that started it.
"""

from __future__ import annotations

import os
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from tidelog.broker.authorization.faults import Fault
from tidelog.broker.broker_thread import BrokerThread, Reply
from tidelog.broker.node import Node
from tidelog.broker.requests.listeners import joined, loopback
from tidelog.broker.server.secured.quick_security import QuickSecurity
from tidelog.broker.serving_broker import ServingBroker
from tidelog.broker.settings.server_properties import described, sort_properties
from tidelog.broker.settings.unused_properties import UNUSED_PROPERTIES
from tidelog.broker.topics.topic_changes import Job
from tidelog.clock import Clock, SystemClock
from tidelog.config import PropertyValue
from tidelog.errors import InvalidArgumentError, TopicExistsError, UnknownTopicOrPartitionError
from tidelog.folder_path import folder_path
from tidelog.model import TopicPartition
from tidelog.records.batch import CREATE_TIME, iter_headers
from tidelog.records.builder import build_batch_v2
from tidelog.records.kernel import murmur2
from tidelog.records.records import Record, iter_records
from tidelog.security.client_config import PLAINTEXT
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation
from tidelog.storage.steps import Steps, run_steps

T = TypeVar("T")

READ_BYTES = 1 << 20

Value = bytes | str | None

_OF_OTHER_CLIENTS = {
    "num_partitions": "partitions, the second argument",
    "replication_factor": "nothing: this broker has the only replica",
    "replica_assignments": "nothing: this broker has the only replica",
    "config": "the properties themselves: retention_ms=1000",
    "topic_configs": "the properties themselves: retention_ms=1000",
}
"""Arguments of other clients' classes for new topics, and what to pass to `create_topic` instead."""


class Broker:
    """A broker in this process, for any Kafka client. Raises InvalidArgumentError for an unknown property or an invalid value."""

    def __init__(
        self,
        data_dir: str | Path | None = None,
        port: int = 0,
        clock: Clock | None = None,
        read_only: bool = False,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        **kafka_properties: PropertyValue | None,
    ) -> None:
        given = {
            name if "." in name else name.replace("_", "."): value
            for name, value in kafka_properties.items()
            if value is not None
        }
        for name in given:
            if name.split(".")[0] in ("ssl", "sasl", "security") and name not in UNUSED_PROPERTIES:
                raise InvalidArgumentError(
                    "this is not a property of a broker; client_config() returns the settings of clients",
                    found=name,
                    expected="tls=True, users={'alice': 'secret'}",
                )
        self._security: QuickSecurity | None = None
        if tls or users is not None:
            if "listeners" in given or "listener.security.protocol.map" in given:
                raise InvalidArgumentError("the listeners already name their security protocols: leave out tls and users")
            self._security = QuickSecurity(tls=tls, users=users, is_read_only=read_only)
            given = {**self._security.properties(port), **given}
        self._properties = sort_properties({"group.initial.rebalance.delay.ms": 0, **given}, topic_names=True)
        if self._properties.unknown:
            raise InvalidArgumentError(
                "unknown property of a broker or topic", found=described(self._properties.unknown, topic_names=True)
            )
        self._clock = clock or SystemClock()
        has_listeners = any(name in given for name in ("listeners", "advertised.listeners", "port", "host.name"))
        self._listeners = self._properties.config.listeners if has_listeners else (loopback(port),)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._is_read_only = read_only
        folder = data_dir or self._properties.config.log_dir
        if folder is None and read_only:
            raise InvalidArgumentError("a read-only broker needs an existing folder", found="none")
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="tidelog-")
            folder = Path(self._temporary.name) / "data"
        self.data_dir = folder_path(folder)
        self._serving: BrokerThread | None = None
        self._if_dropped: weakref.finalize[..., Broker] | None = None
        _brokers.add(self)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._remove_temporary()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.stop()
        finally:
            self._remove_temporary()

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self.is_running else "not running"
        return f"<Broker {where}, {self.data_dir}>"

    # --- start and stop

    def start(self) -> Self:
        """Start the broker, and return once it serves clients. Raises what `LogManager.startup` raises.

        Raises InvalidArgumentError for an invalid address, or if the broker is already running.
        """
        if self._serving is not None:
            raise InvalidArgumentError("the broker is already running", path=self.data_dir)
        serving = BrokerThread(self.data_dir, self._properties, self._listeners, self._clock, is_read_only=self._is_read_only)
        self._listeners = serving.started.result()
        self._serving = serving
        if self._security is not None and not self._is_read_only:
            security = self._security
            self.call(lambda running: security.make_users(running.node))
        # The broker's thread must not refer to this object, which otherwise would never be garbage-collected.
        self._if_dropped = weakref.finalize(self, _dropped, serving, self._temporary, repr(self))
        return self

    def stop(self) -> bool:
        """Shut down: answer pending requests, flush, and write the clean-shutdown file. Return whether the shutdown was clean.
        Idempotent.

        Raises StorageError if the shutdown makes no progress for `broker_thread.STALLED_S`; `stop` may then be called again.
        Raises InvalidArgumentError on the broker's own thread.
        """
        return self._end(is_clean=True)

    def kill(self) -> None:
        """Stop at once, and leave the folder as a killed process does. The next start recovers the logs."""
        self._end(is_clean=False)

    @property
    def is_running(self) -> bool:
        """Whether clients are served."""
        return self._serving is not None

    # --- asking

    @property
    def bootstrap_servers(self) -> str:
        """The `host:port` of the first listener, for clients."""
        listener = self._listeners[0]
        return joined(listener.advertised_host, listener.advertised_port)

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self._listeners[0].port

    def client_config(
        self, client: str = "confluent-kafka", *, user: str | None = None, mechanism: str | None = None
    ) -> dict[str, Any]:
        """Return the settings with which a client library connects to this broker, under that library's names for them.

        `client` is "confluent-kafka", "kafka-python", "aiokafka", "java" (properties) or "tidelog" (for `tidelog.connect`). If
        the broker has `users`, `user` is one of them (by default the first), and `mechanism` is PLAIN, SCRAM-SHA-256 (the
        default) or SCRAM-SHA-512. Raises InvalidArgumentError for any other client, user or mechanism, and if the first of the
        given `listeners` is not PLAINTEXT.
        """
        if self._security is None and self._listeners[0].protocol != PLAINTEXT:
            raise InvalidArgumentError("the listeners were given as properties: configure the clients to match")
        security = self._security or QuickSecurity(tls=False, users=None, is_read_only=self._is_read_only)
        return security.client_config(client, self.bootstrap_servers, user, mechanism)

    # --- topics and records, without a client

    def create_topic(self, name: str, partitions: int = 1, **properties: PropertyValue) -> None:
        """Create a topic. Properties have Kafka's names: `retention_ms=1000` or `**{"retention.ms": 1000}`.

        Raises TopicExistsError, and InvalidArgumentError for a name, number or property that Kafka would refuse.
        """
        self._check_writable()
        for other, instead in _OF_OTHER_CLIENTS.items():
            if other in properties:
                raise InvalidArgumentError(f"create_topic has no argument {other}", expected=instead)
        named = {name if "." in name else name.replace("_", "."): value for name, value in properties.items()}
        self._change(name, lambda node: node.topics.creation(name, partitions, named))

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and the groups' committed offsets for it. Raises UnknownTopicOrPartitionError."""
        self._check_writable()

        def deletion(node: Node) -> Steps[Any]:
            view = node.topics.get(name)
            if view is None:
                raise UnknownTopicOrPartitionError(f"no topic {name!r}", path=self.data_dir)
            return node.topics.deletion(view)

        self._change(name, deletion)

    @overload
    def produce(
        self,
        topic: str,
        value: Value,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> int: ...

    @overload
    def produce(
        self,
        topic: str,
        value: list[bytes] | list[str] | list[Value] | tuple[Value, ...],
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> list[int]: ...

    def produce(
        self,
        topic: str,
        value: Value | list[bytes] | list[str] | list[Value] | tuple[Value, ...],
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> int | list[int]:
        """Append a record and return its offset, or append several records as one batch and return their offsets. Text is stored
        as UTF-8.

        By default the hash of the key chooses the `partition`, as in Kafka's producer (0 without a key), and `timestamp_ms` is
        the time of the broker's clock. A missing topic is created with `num.partitions`. Raises UnknownTopicOrPartitionError,
        InvalidArgumentError if the broker is read-only, and what an append raises.
        """
        values = [value] if value is None or isinstance(value, bytes | str) else list(value)
        self._check_writable()
        if not values:
            return []
        encoded_key, encoded_headers = _bytes(key), tuple(headers)

        def append(running: ServingBroker) -> int:
            node = running.node
            view = node.topics.get(topic)
            if view is None:
                raise UnknownTopicOrPartitionError(f"no topic {topic!r}", path=self.data_dir)
            at = partition
            if at is None:
                at = 0 if encoded_key is None else (murmur2(encoded_key) & 0x7FFFFFFF) % len(view.partitions)
            created_ms = node.clock.now_ms() if timestamp_ms is None else timestamp_ms
            records = [
                Record(index, created_ms, CREATE_TIME, encoded_key, _bytes(one), encoded_headers)
                for index, one in enumerate(values)
            ]
            log = node.manager.log(topic, at)
            info = log.append_as_leader(build_batch_v2(records), node.leader_epoch(log.topic_partition))
            node.leadership.appended(log)
            return info.first_offset

        if not self.call(lambda running: running.node.topics.get(topic)):
            with suppress(TopicExistsError):  # Another client has created it meanwhile.
                self._change(topic, lambda node: node.topics.creation(topic, node.config.num_partitions, {}))
        first = self.call(append)
        return first if value is None or isinstance(value, bytes | str) else [first + index for index in range(len(values))]

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """Return the records of a topic or of one partition, in order of partition and offset. They include uncommitted
        transactions (read_uncommitted).

        Raises UnknownTopicOrPartitionError.
        """
        found: list[Record] = []

        def read(running: ServingBroker) -> None:
            keys = running.node.manager.partitions_of(topic)
            if partition is not None or not keys:
                keys = [TopicPartition(topic, partition or 0)]
            for key in keys:
                found.extend(_records(running.node.manager.log(*key)))

        self.call(read)
        return found

    def fail(self, api: str, error: str | int | None, *, topic: str | None = None, times: int | None = 1) -> Fault:
        """Make the next `times` requests of an API fail, or all of them if `times` is None. Return the fault: its `stop` ends
        it, and its `count` is how often it has occurred.

        `api` and `error` are Kafka's names, such as "Fetch" and "NOT_LEADER_OR_FOLLOWER" (or 6). If the error is None, the
        connection is closed. A failed request has no effect. With `topic`, only requests that name this topic fail, and only
        their part for this topic. A restart clears all faults. Raises InvalidArgumentError for an unknown name, for `times` below
        1, and for a `topic` if requests of that API can only fail as a whole.
        """
        return self.call(lambda running: running.node.faults.add(api, error, topic, times))

    def tick(self) -> int:
        """Run the tasks that are due by the clock (retention, compaction, deletions), and return how many ran. The broker also
        does this automatically; with a `ManualClock`, each `advance` does it.
        """
        return self.call(ServingBroker.tick)

    def call(self, work: Callable[[ServingBroker], T]) -> T:
        """Call `work` on the broker's thread and return its result. Only that thread may read the broker's state."""
        if self._serving is None:
            raise InvalidArgumentError("the broker is not running", path=self.data_dir)
        return self._serving.call(work)

    # --- inside

    def _change(self, name: str, steps: Callable[[Node], Steps[Any]]) -> None:
        """Create or delete a topic as for a client. On the broker's own thread this is one step, because that thread must not
        wait.
        """
        if self._serving is not None and self._serving.is_here:
            self.call(lambda running: run_steps(steps(running.node), running.node.manager.metadata))
            return
        made: Reply[Any] = Reply()
        self.call(lambda running: running.node.topic_changes.begin(Job(name, steps(running.node)), made.give))
        result = made.get()
        if isinstance(result, Exception):
            raise result

    def _check_writable(self) -> None:
        if self._is_read_only:
            raise InvalidArgumentError("the broker serves its folder read-only", path=self.data_dir)

    def _end(self, *, is_clean: bool) -> bool:
        serving = self._serving
        if serving is None:
            return False
        try:
            return serving.end(is_clean=is_clean)
        finally:
            if serving.is_over and self._serving is serving:
                self._serving = None
                if self._if_dropped is not None:
                    self._if_dropped.detach()

    def _forked(self) -> None:
        """Give up the broker in a forked process, which lacks the broker's thread. Its files are left alone."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.forked()
        if self._if_dropped is not None:
            self._if_dropped.detach()
        if self._temporary is not None:
            self._temporary._finalizer.detach()  # type: ignore[attr-defined]
            self._temporary = None

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()


def _bytes(value: Value) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _records(log: PartitionLog) -> Iterator[Record]:
    """Yield a log's records up to its high watermark, without transaction markers."""
    offset = log.log_start_offset
    while offset < log.high_watermark:
        data = log.read(offset, READ_BYTES, FetchIsolation.HIGH_WATERMARK).data
        before = offset
        for header in iter_headers(data):
            if not header.is_control:
                batch = iter_records(header, data[header.position : header.end_position])
                yield from (record for record in batch if record.offset >= before)
            offset = header.next_offset
        if offset == before:
            return


def _dropped(serving: BrokerThread, temporary: tempfile.TemporaryDirectory[str] | None, what: str) -> None:
    """Stop a broker that was garbage-collected while it ran, then remove its temporary folder."""
    if threading.main_thread().is_alive():  # If not, the program is ending, and no warning is needed.
        warnings.warn(f"{what} was garbage-collected without stop(): stopping it now", ResourceWarning, stacklevel=2)
    serving.drop(temporary)


_brokers: weakref.WeakSet[Broker] = weakref.WeakSet()


def _forked() -> None:
    for broker in list(_brokers):
        broker._forked()


os.register_at_fork(after_in_child=_forked)
