"""What lives in the cluster: records with and without transactions, topics that come and go, settings, partitions, groups."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.backup_soak.model import Commit, Entry, Life, Sent, entries
from tests.kafka.clients import alter_topic, create_topics, wait_until_ended
from tests.kafka.clusters import KafkaCluster
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.client.connections.cluster import Cluster
from tidelog.client.connections.coordinators import ask_coordinator
from tidelog.errors import BrokerError, BrokerUnreachableError
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

NAMES = ("plain", "ledger", "fleeting", "state")
LASTING = ("plain", "ledger", "state")
GROUPS = ("readers", "billing", "visitors")
REPLICAS = 3
KEYS = 12


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Workload:
    """Does one thing after the other, at random, until `stop`; `lives` and `commits` say what it did."""

    def __init__(self, cluster: KafkaCluster, seed: int, ticks_per_second: float) -> None:
        self.lives: list[Life] = []
        self.commits: dict[str, list[Commit]] = {name: [] for name in GROUPS}
        self.done = 0
        self.failed: BaseException | None = None
        self._cluster = cluster
        self._random = random.Random(seed)
        self._pause_s = 1 / ticks_per_second
        self._stopped = threading.Event()
        base: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0}
        base["topic.metadata.refresh.interval.ms"] = 1000
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self._plain = Producer({**base, "enable.idempotence": True})
        # A coordinator that is gone for a minute must not abort what the model takes for open.
        base["transaction.timeout.ms"] = 600_000
        self._producers = {name: Producer({**base, "transactional.id": name}) for name in ("cashier", "clerk")}
        for one in self._producers.values():
            one.init_transactions(PATIENCE_S)
        self._consumers = {
            name: Consumer(
                {"bootstrap.servers": cluster.bootstrap, "group.id": name, "log_level": 0, "socket.timeout.ms": 15_000}
            )
            for name in GROUPS
        }
        self._open: dict[str, int] = {}
        for name in NAMES:
            self._create(name)
        self._thread = threading.Thread(target=self._run, name="workload", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End all transactions, and read the logs of what is left."""
        self._stopped.set()
        self._thread.join()
        if self.failed is not None:
            raise self.failed
        self._settle()
        for life in self.lives:
            if life.deleted_ms is None:
                self._keep_logs(life)

    def _run(self) -> None:
        actions: list[tuple[Callable[[], None], int]] = [
            (self._produce, 40),
            (self._transact, 30),
            (self._commit, 15),
            (self._alter, 2),
            (self._extend, 1),
            (self._recreate, 1),
            (self._forget, 2),
        ]
        works, weights = zip(*actions, strict=True)
        try:
            while not self._stopped.wait(self._pause_s):
                self._random.choices(works, weights)[0]()
                self.done += 1
        except BaseException as error:
            self.failed = error

    @property
    def _living(self) -> list[Life]:
        return [one for one in self.lives if one.deleted_ms is None]

    def _produce(self) -> None:
        life = self._random.choice([one for one in self._living if one.name != "ledger"])
        for _ in range(self._random.choice((1, 5, 30))):
            self._send(self._plain, life)
        self._plain.poll(0)

    def _send(self, producer: Producer, life: Life) -> None:
        rnd = self._random
        partition = rnd.randrange(life.partitions)
        # Where compaction may remove a record before it is read, it must not have been the one that ends a restore.
        late_ms = 0 if life.is_compacted else rnd.choice((0, 0, 0, rnd.randrange(3000), -rnd.randrange(500)))
        timestamp = now_ms() - late_ms
        key = b"%d" % rnd.randrange(KEYS) if life.is_compacted or rnd.random() < 0.8 else None
        value = None if life.is_compacted and rnd.random() < 0.2 else b"%d " % self.done + rnd.randbytes(rnd.choice((0, 20, 400)))

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                sent = Sent(message.partition(), message.offset(), timestamp, key, value, now_ms())
                life.sent.append(sent)

        with suppress(BufferError):
            try:
                producer.produce(life.name, value, key, partition, timestamp=timestamp, on_delivery=delivered)
            except KafkaException as error:  # The producer has not heard of a new topic, or partition, yet.
                if error.args[0].name() not in ("_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"):
                    raise
                producer.poll(0.2)

    def _transact(self) -> None:
        """Begin, go on with, or end a transaction."""
        name = self._random.choice(sorted(self._producers))
        producer = self._producers[name]
        if name not in self._open:
            producer.begin_transaction()
            self._open[name] = 0
        (ledger,) = (one for one in self._living if one.name == "ledger")
        for _ in range(self._random.choice((1, 4))):
            self._send(producer, ledger)
        self._open[name] += 1
        if self._random.random() < 0.4:
            self._end(name, commits=self._random.random() < 0.6)

    def _end(self, name: str, *, commits: bool) -> None:
        producer = self._producers[name]
        del self._open[name]
        producer.flush(PATIENCE_S)
        while True:
            try:
                (producer.commit_transaction if commits else producer.abort_transaction)(PATIENCE_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def _settle(self) -> None:
        for name in list(self._open):
            self._end(name, commits=False)
        self._plain.flush(PATIENCE_S)
        wait_until_ended(self._cluster.bootstrap, *self._producers)

    def _commit(self) -> None:
        group = self._random.choice(GROUPS)
        life = self._random.choice([one for one in self._living if one.name in LASTING])
        sent = life.sent[-200:]
        offsets = {(life.name, one.partition): one.offset + 1 for one in self._random.sample(sent, min(3, len(sent)))}
        if offsets:
            places = [TopicPartition(*key, offset) for key, offset in offsets.items()]
            began = now_ms()
            if self._asked(lambda: self._alter_group(group, places)):
                self.commits[group].append(Commit(began, now_ms(), offsets))

    def _alter_group(self, group: str, places: list[TopicPartition]) -> bool:
        # By a consumer: librdkafka's admin client aborts the process where a coordinator is killed.
        committed = self._consumers[group].commit(offsets=places, asynchronous=False)
        return all(place.error is None for place in committed or ())

    def _forget(self) -> None:
        """Delete a group."""
        began = now_ms()

        def deletes() -> bool:
            request = DeleteGroupsRequest(groups_names=["visitors"])
            try:
                with Cluster.at(self._cluster.bootstrap, "soak", timeout_ms=15_000) as cluster:
                    answer = ask_coordinator(cluster, "visitors", request, DeleteGroupsResponse, _delete_codes, newest=2)
            except (BrokerError, BrokerUnreachableError):
                return False
            return set(_delete_codes(answer)) <= {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}

        if self._asked(deletes):
            self.commits["visitors"].append(Commit(began, now_ms(), None))

    def _asked(self, ask: Callable[[], bool], done: str = "-") -> bool:
        """Ask until it is done: a broker may be gone, a coordinator move. They take their time on a machine with other work."""
        last = ""

        def is_done() -> bool:
            nonlocal last
            try:
                return ask()
            except KafkaException as error:
                last = str(error)
                return error.args[0].name() == done

        try:
            wait_until(is_done, "an answer", 5 * PATIENCE_S)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {last or 'a partition was refused'}") from None
        return True

    def _alter(self) -> None:
        life = self._random.choice(self._living)
        settings = {"max.message.bytes": str(self._random.randrange(500_000, 2_000_000))}
        began = now_ms()

        def alters() -> bool:
            alter_topic(self._cluster.bootstrap, life.name, settings)
            return True

        self._asked(alters)
        life.settings.append((began, now_ms(), settings))

    def _extend(self) -> None:
        life = self._random.choice([one for one in self._living if not one.is_compacted])
        if life.partitions < 5:
            wanted = NewPartitions(life.name, life.partitions + 1)

            def extends() -> bool:
                (answer,) = self._admin.create_partitions([wanted], request_timeout=15).values()
                answer.result(PATIENCE_S)
                return True

            self._asked(extends, "INVALID_PARTITIONS")
            self._wait_for(life.name, life.partitions + 1)
            life.partitions += 1

    def _recreate(self) -> None:
        """Delete a topic, and create it again."""
        (life,) = (one for one in self._living if one.name == "fleeting")
        self._plain.flush(PATIENCE_S)
        self._keep_logs(life)
        life.deleted_ms = now_ms()

        def deletes() -> bool:
            (answer,) = self._admin.delete_topics(["fleeting"], request_timeout=15).values()
            answer.result(PATIENCE_S)
            return True

        self._asked(deletes, "UNKNOWN_TOPIC_OR_PART")
        wait_until(lambda: "fleeting" not in self._admin.list_topics(timeout=PATIENCE_S).topics, "a topic gone", PATIENCE_S)
        self._create("fleeting")

    def _create(self, name: str) -> None:
        is_compacted = name == "state"
        count = 1 if is_compacted else self._random.randint(1, 3)
        settings = {"min.insync.replicas": "2", "segment.bytes": "16384", "retention.ms": "-1"}
        if is_compacted:
            settings |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"}
        create_topics(self._cluster.bootstrap, {name: settings}, count, REPLICAS)
        created_ms = now_ms()
        with Cluster.at(self._cluster.bootstrap, "soak") as cluster:
            # The broker that answers may learn of the topic later.
            wait_until(lambda: name in cluster.topics(), f"topic {name}", PATIENCE_S)
            topic_id = str(cluster.topics()[name].topic_id)
        self.lives.append(Life(name, is_compacted, count, created_ms, topic_id=topic_id, settings=[(0, 0, settings)]))

    def _wait_for(self, topic: str, partitions: int) -> None:
        def is_there() -> bool:
            found = self._admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
            return len(found) == partitions and all(one.leader >= 0 for one in found.values())

        wait_until(is_there, f"{partitions} partitions of {topic}", PATIENCE_S)

    def _keep_logs(self, life: Life) -> None:
        """Read its logs from the brokers' files: the longest of each partition's."""
        for number in range(life.partitions):
            life.logs[number] = self._longest(f"{life.name}-{number}", life, number)

    def _longest(self, folder: str, life: Life, number: int) -> list[Entry]:
        end = max((one.offset for one in life.sent if one.partition == number), default=-1)
        found: list[Entry] = []

        def is_whole() -> bool:
            nonlocal found
            logs = [entries(one.data / folder) for one in self._cluster.brokers.values() if Path(one.data / folder).is_dir()]
            found = max(logs, key=lambda log: log[-1].offset if log else -1)
            return not found or found[-1].offset >= end

        wait_until(is_whole, f"the log of {folder}", PATIENCE_S)
        return found


def _delete_codes(answer: DeleteGroupsResponse) -> list[int]:
    return [one.error_code for one in answer.results]


__all__ = ["LASTING", "Workload", "now_ms"]
