"""Members of consumer groups: one interface for several client libraries. Each member polls on its own thread, like a program.

| class | library | assignors here | static members |
|---|---|---|---|
| `LibrdkafkaMember` | confluent-kafka | range, roundrobin, cooperative-sticky | yes |
| `KafkaPythonMember` | kafka-python | range, roundrobin, sticky (1) | yes |
| `AioKafkaMember` | aiokafka | range, roundrobin, sticky | yes |

(1) Of a cooperative rebalance it says when it can commit no more, so that records would be read twice.

(2) It joins again when its subscription or its topics' metadata have changed. If a poll's time is over before the broker has
answered JoinGroup and SyncGroup, kafka-python 3.0.12 never completes that join: the change counts as joined, so `need_rejoin` is
false, and no later poll awaits the answers. Heartbeats stay off, and the broker removes the member after its session. A process
that was stopped finds its poll's time over and its metadata old when it continues, so now and then it did not come back.
`_consume` asks for a join until one is complete.

A member that the broker removed (its process was stopped for longer than its session) may not know it yet when it joins again for
another reason, such as new metadata. Libraries then call the listener for revoked partitions, not for lost ones, and a commit
there fails, with Tidelog as with Apache Kafka 3.9.1. What a listener raises ends kafka-python's and librdkafka's poll with an
error; a program that ends with it looks like a member that does not come back. So listeners here take such partitions for lost.

A member commits what it has read when partitions are taken from it, and when `commit` is called; never by itself.

| of a member | |
|---|---|
| `assigned` | its partitions now |
| `history` | what it was given and what was taken from it, in order |
| `rows` | what it read, in order: partition, offset, value |
| `error` | what ended its thread |

Read them under `changed`, a condition that is notified on each change; `wait_for` does both. `on_thread` runs something with the
library's consumer, on the thread that polls.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, NamedTuple, Self

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from tests.patience import PATIENCE_S

with warnings.catch_warnings():
    # kafka-python reads files of its package in a way that Python 3.11 calls old.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    import kafka

POLL_S = 0.05
HEARTBEAT_MS = 100
"""How soon (seconds) a member notices a rebalance."""


class Place(NamedTuple):
    topic: str
    partition: int


class Read(NamedTuple):
    """A record that a member received."""

    place: Place
    offset: int
    value: bytes | None


class Change(NamedTuple):
    """`kind` is "assigned", "revoked" or "lost"."""

    kind: str
    places: frozenset[Place]


class Member(abc.ABC):
    """See the module."""

    library = ""
    assignors: tuple[str, ...] = ()

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        *,
        assignors: Sequence[str] = ("range",),
        instance_id: str | None = None,
        client_id: str = "",
        heartbeat_ms: int = HEARTBEAT_MS,
        session_timeout_ms: int = 30_000,  # The most that brokers of 0.9.0.1 allow, and less than its request.timeout.ms.
        isolation: str = "read_uncommitted",
        protocol: str = "classic",
    ) -> None:
        self.bootstrap = bootstrap
        self.protocol = protocol
        self.group = group
        self.topics = list(topics)
        self.wanted_assignors = list(assignors)
        self.instance_id = instance_id
        self.client_id = client_id or self.library
        self.heartbeat_ms = heartbeat_ms
        self.session_timeout_ms = session_timeout_ms
        self.isolation = isolation
        self.changed = threading.Condition()
        self.assigned: set[Place] = set()
        self.history: list[Change] = []
        self.rows: list[Read] = []
        self.error: BaseException | None = None
        self._work: queue.SimpleQueue[tuple[Callable[[Any], Any], Future[Any]]] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._start()

    def __repr__(self) -> str:
        return f"{self.client_id} of {self.group}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    # --- what tests ask

    def wait_for(self, condition: Callable[[Self], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until it holds; raises what ended the member, TimeoutError after the time."""
        with self.changed:
            self.changed.wait_for(lambda: condition(self) or self.error is not None, timeout_s)
            if not condition(self):
                if self.error is not None:
                    raise self.error
                raise TimeoutError(
                    f"{self}: waited for {what}; has {sorted(self.assigned)}, {len(self.rows)} rows, {self.history[-4:]}"
                )

    def on_thread(self, work: Callable[[Any], Any]) -> Any:
        """Call it with the library's consumer between two polls; a coroutine function with aiokafka."""
        done: Future[Any] = Future()
        self._work.put((work, done))
        if not self._thread.is_alive():
            raise self.error or AssertionError(f"{self} has ended")
        return done.result(PATIENCE_S)

    def subscribe(self, topics: Sequence[str]) -> None:
        """To these topics instead."""
        self.topics = list(topics)
        self.on_thread(self._subscribe)

    def commit(self) -> None:
        """What it has read, and wait for the answer."""
        self.on_thread(self._commit)

    @abc.abstractmethod
    def committed(self) -> dict[Place, int]:
        """The group's committed offsets of what it is assigned."""

    @abc.abstractmethod
    def seek_to_time(self, timestamp: int) -> dict[Place, int]:
        """Go to the first records at or after a time, to the end where there are none; to which offsets."""

    def close(self) -> None:
        """End it; it leaves the group, if it is not a static member."""
        self._ending.set()
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            raise TimeoutError(f"{self} does not end")

    # --- of its thread

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"member {self.client_id}", daemon=True)
        self._thread.start()

    @abc.abstractmethod
    def _consume(self) -> None:
        """Subscribe, poll until `_ending`, close."""

    @abc.abstractmethod
    def _subscribe(self, consumer: Any) -> Any: ...

    @abc.abstractmethod
    def _commit(self, consumer: Any) -> Any: ...

    def _run(self) -> None:
        try:
            self._consume()
        except BaseException as error:
            with self.changed:
                self.error = error
                self.changed.notify_all()
        finally:
            while not self._work.empty():
                self._work.get()[1].set_exception(self.error or AssertionError(f"{self} has ended"))

    def _works(self) -> Iterator[tuple[Callable[[Any], Any], Future[Any]]]:
        while not self._work.empty():
            yield self._work.get()

    def _work_off(self, consumer: Any) -> None:
        for work, done in self._works():
            try:
                done.set_result(work(consumer))
            except BaseException as error:
                done.set_exception(error)

    def _note(self, kind: str, places: Iterable[tuple[str, int]]) -> None:
        change = Change(kind, frozenset(Place(*place) for place in places))
        with self.changed:
            if kind == "assigned":
                self.assigned |= change.places
            else:
                self.assigned -= change.places
            self.history.append(change)
            self.changed.notify_all()

    def _add(self, rows: list[Read]) -> None:
        if rows:
            with self.changed:
                self.rows += rows
                self.changed.notify_all()


class LibrdkafkaMember(Member):
    library = "librdkafka"
    assignors = ("range", "roundrobin", "cooperative-sticky")

    def _consume(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.id": self.client_id,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": self.isolation,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
        if self.protocol == "classic":
            settings["partition.assignment.strategy"] = ",".join(self.wanted_assignors)
            settings["session.timeout.ms"] = self.session_timeout_ms
            settings["heartbeat.interval.ms"] = self.heartbeat_ms
        else:
            settings["group.protocol"] = self.protocol
            settings["group.remote.assignor"] = self.wanted_assignors[0]
        if self.instance_id is not None:
            settings["group.instance.id"] = self.instance_id
        consumer = Consumer(settings)
        try:
            self._subscribe(consumer)
            while not self._ending.is_set():
                self._work_off(consumer)
                message = consumer.poll(POLL_S)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    place = Place(str(message.topic()), int(message.partition() or 0))
                    self._add([Read(place, int(message.offset() or 0), message.value())])
                elif error.fatal() or error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                    raise KafkaException(error)
        finally:
            consumer.close()

    def _subscribe(self, consumer: Consumer) -> None:
        consumer.subscribe(self.topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def _on_assign(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self._note("assigned", ((place.topic, place.partition) for place in places))

    def _on_revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        kind = "revoked"
        try:
            self._commit(consumer)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_MEMBER_ID:
                raise
            kind = "lost"
        self._note(kind, ((place.topic, place.partition) for place in places))

    def _on_lost(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self._note("lost", ((place.topic, place.partition) for place in places))

    def _commit(self, consumer: Consumer) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def committed(self) -> dict[Place, int]:
        def ask(consumer: Consumer) -> dict[Place, int]:
            answers = consumer.committed(consumer.assignment(), timeout=PATIENCE_S)
            return {Place(each.topic, each.partition): each.offset for each in answers if each.offset != OFFSET_INVALID}

        answered: dict[Place, int] = self.on_thread(ask)
        return answered

    def seek_to_time(self, timestamp: int) -> dict[Place, int]:
        def seek(consumer: Consumer) -> dict[Place, int]:
            asked = [TopicPartition(place.topic, place.partition, timestamp) for place in consumer.assignment()]
            went = {}
            for found in consumer.offsets_for_times(asked, timeout=PATIENCE_S):
                if found.offset < 0:
                    found.offset = consumer.get_watermark_offsets(found, timeout=PATIENCE_S)[1]
                consumer.seek(found)
                went[Place(found.topic, found.partition)] = found.offset
            return went

        answered: dict[Place, int] = self.on_thread(seek)
        return answered


def _settings(member: Member, assignors: Mapping[str, Any]) -> dict[str, Any]:
    """What kafka-python and aiokafka call alike."""
    return {
        "bootstrap_servers": member.bootstrap,
        "group_id": member.group,
        "client_id": member.client_id,
        "partition_assignment_strategy": [assignors[name] for name in member.wanted_assignors],
        "session_timeout_ms": member.session_timeout_ms,
        "heartbeat_interval_ms": member.heartbeat_ms,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": member.isolation,
        "fetch_max_wait_ms": 100,
    }


class KafkaPythonMember(Member):
    library = "kafka-python"
    assignors = ("range", "roundrobin", "sticky")
    _ASSIGNORS: ClassVar[dict[str, Any]] = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }

    def _consume(self) -> None:
        member = self

        class Listener(kafka.AsyncConsumerRebalanceListener):  # type: ignore[misc]
            """Called on the library's own thread."""

            async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                kind = "revoked"
                try:
                    if revoked:
                        await consumer.commit_async()
                except kafka.errors.CommitFailedError:
                    kind = "lost"
                member._note(kind, revoked)

            async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                member._note("assigned", assigned)

            async def on_partitions_lost(self, lost: Iterable[Any]) -> None:
                member._note("lost", lost)

        settings: dict[str, Any] = {"group_instance_id": self.instance_id} if self.instance_id is not None else {}
        consumer = kafka.KafkaConsumer(**_settings(self, self._ASSIGNORS), **settings)
        # A consumer whose end is refused (it is fenced) leaves its connections, and goes on connecting forever.
        with contextlib.closing(consumer._client), contextlib.closing(consumer):
            self._listener = Listener()
            self._subscribe(consumer)
            while not self._ending.is_set():
                self._work_off(consumer)
                # Otherwise a join that takes longer than a poll is lost: see (2) above.
                consumer._coordinator.rejoin_needed |= consumer._coordinator.rejoining
                for place, records in consumer.poll(int(POLL_S * 1000) if self.assigned else 2000).items():
                    self._add([Read(Place(*place), record.offset, record.value) for record in records])

    def _subscribe(self, consumer: Any) -> None:
        # Else it may join before it knows them, assigns nothing, and now and then hangs when it has to join again.
        for topic in self.topics:
            consumer.partitions_for_topic(topic)
        consumer.subscribe(self.topics, listener=self._listener)

    def _commit(self, consumer: Any) -> None:
        consumer.commit(timeout_ms=PATIENCE_S * 1000)

    def committed(self) -> dict[Place, int]:
        def ask(consumer: Any) -> dict[Place, int]:
            answers = {Place(*place): consumer.committed(place) for place in consumer.assignment()}
            return {place: offset for place, offset in answers.items() if offset is not None}

        answered: dict[Place, int] = self.on_thread(ask)
        return answered

    def seek_to_time(self, timestamp: int) -> dict[Place, int]:
        def seek(consumer: Any) -> dict[Place, int]:
            places = consumer.assignment()
            ends = consumer.end_offsets(places)
            went = {}
            for place, found in consumer.offsets_for_times(dict.fromkeys(places, timestamp)).items():
                went[Place(*place)] = found.offset if found else ends[place]
                consumer.seek(place, went[Place(*place)])
            return went

        answered: dict[Place, int] = self.on_thread(seek)
        return answered


class AioKafkaMember(Member):
    library = "aiokafka"
    assignors = ("range", "roundrobin", "sticky")
    _ASSIGNORS: ClassVar[dict[str, Any]] = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}

    def _consume(self) -> None:
        asyncio.run(self._consume_on_loop())

    async def _consume_on_loop(self) -> None:
        member = self

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                if revoked:
                    await member._commit(consumer)
                member._note("revoked", revoked)

            async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                member._note("assigned", assigned)

        consumer = aiokafka.AIOKafkaConsumer(**_settings(self, self._ASSIGNORS), group_instance_id=self.instance_id)
        self._listener = Listener()
        await self._subscribe(consumer)
        await consumer.start()
        try:
            while not self._ending.is_set():
                for work, done in self._works():
                    try:
                        done.set_result(await work(consumer))
                    except BaseException as error:
                        done.set_exception(error)
                for place, records in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).items():
                    self._add([Read(Place(*place), record.offset, record.value) for record in records])
            # Nothing is passed partitions that end with it.
            await consumer.commit()
        finally:
            await consumer.stop()

    async def _subscribe(self, consumer: Any) -> None:
        consumer.subscribe(self.topics, listener=self._listener)

    async def _commit(self, consumer: Any) -> None:
        await consumer.commit()

    def committed(self) -> dict[Place, int]:
        async def ask(consumer: Any) -> dict[Place, int]:
            answers = {Place(*place): await consumer.committed(place) for place in consumer.assignment()}
            return {place: offset for place, offset in answers.items() if offset is not None}

        answered: dict[Place, int] = self.on_thread(ask)
        return answered

    def seek_to_time(self, timestamp: int) -> dict[Place, int]:
        async def seek(consumer: Any) -> dict[Place, int]:
            places = consumer.assignment()
            ends = await consumer.end_offsets(places)
            went = {}
            for place, found in (await consumer.offsets_for_times(dict.fromkeys(places, timestamp))).items():
                went[Place(*place)] = found.offset if found else ends[place]
                consumer.seek(place, went[Place(*place)])
            return went

        answered: dict[Place, int] = self.on_thread(seek)
        return answered


MEMBERS: tuple[type[Member], ...] = (LibrdkafkaMember, KafkaPythonMember, AioKafkaMember)


def wait_until_settled(members: Sequence[Member], places: Iterable[Place], timeout_s: float = PATIENCE_S) -> None:
    """Wait until each partition is one member's, and each member has one, if there are enough."""
    wanted = sorted(places)

    def is_settled() -> bool:
        for member in members:
            if member.error is not None:
                raise member.error
        has = [set(member.assigned) for member in members]
        return sorted(place for each in has for place in each) == wanted and sum(map(bool, has)) == min(len(wanted), len(has))

    _wait(members, is_settled, "partitions that are distributed", timeout_s)


def wait_until_read(members: Sequence[Member], rows: int, timeout_s: float = PATIENCE_S) -> None:
    """Wait until they have so many rows between them."""

    def is_read() -> bool:
        return sum(len(member.rows) for member in members) >= rows

    _wait(members, is_read, f"{rows} rows", timeout_s)


def _wait(members: Sequence[Member], condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            seen = "; ".join(f"{each}: {sorted(each.assigned)}, {len(each.rows)} rows, {each.history}" for each in members)
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}: {seen}")
        time.sleep(0.01)
