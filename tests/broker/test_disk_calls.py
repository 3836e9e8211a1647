"""Every call that may wait for a disk, and the thread that makes it: what the broker's loop does not do itself.

All that a broker does for its clients and for its folder is done once, while each of the operating system's calls is noted that
changes a folder or forces something to the disk. Nothing may be synced on the loop's thread; which changes of folders are made
there is listed, with the reason.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.groups.offset_requests import Offset, commit
from tests.broker.test_scarce import eventually
from tests.broker.transactions.producers import TransactionalProducer
from tests.patience import PATIENCE_S

NEVER = ("fsync", "fdatasync", "sync", "posix_fallocate", "rmdir", "mkdir", "listdir", "scandir")
SELDOM = ("rename", "replace", "unlink", "remove", "truncate", "open")

LOOP = "broker"

ALLOWED = {
    "delete_segment_files": "segments that go are renamed on the loop, four at a time: nobody may find them again",
    "delete_producer_snapshots": "so are the snapshots beside them",
    "replacing_segments": "compacted segments take the place of others by renames, while nobody reads",
    "_name": "the same",
    "_new_cleaned_segment": "what a pass that was ended has left is removed before a new one: as a rule nothing",
    "delete_if_exists": "files that were removed by another thread before, or a few that were just begun",
    "take_snapshot": "a roll makes the files of its segment, without waiting until they are on the disk: the snapshot is one",
    "remove_time_map": "a segment's time map, which is small, goes before the segment does",
    "_rename": "folders of a deleted topic, some at a time",
}
"""Functions that may make, rename or remove files on the loop: the file system's journal takes that, and waits for no disk."""


class Calls:
    """What was called on the loop's thread, by whom."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.here: Counter[str] = Counter()
        self.elsewhere: Counter[str] = Counter()
        self.is_watching = False
        for name in (*NEVER, *SELDOM[:-1]):
            self._watch(patch, name)
        opened = io.open

        def watched(file: object, mode: str = "r", *args: object, **options: object) -> object:
            if self.is_watching and set(mode) & set("wax+"):
                self._note("open", sys._getframe(1))
            return opened(file, mode, *args, **options)  # type: ignore[call-overload]

        patch.setattr(io, "open", watched)

    def _watch(self, patch: pytest.MonkeyPatch, name: str) -> None:
        call: Callable[..., object] = getattr(os, name)

        def watched(*args: object, **options: object) -> object:
            if self.is_watching:
                self._note(name, sys._getframe(1))
            return call(*args, **options)

        patch.setattr(os, name, watched)

    def _note(self, name: str, frame: FrameType | None) -> None:
        chain: list[str] = []
        while frame is not None:
            if "/tidelog/" in frame.f_code.co_filename:
                chain.append(frame.f_code.co_name)
            frame = frame.f_back
        if threading.current_thread().name != LOOP:
            self.elsewhere[name] += 1
        elif not (name in SELDOM and set(chain) & ALLOWED.keys()):
            self.here[f"{name} by {' < '.join(chain[:6])}"] += 1


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    yield Calls(monkeypatch)


PROPERTIES = {
    "log.flush.scheduler.interval.ms": 50,
    "log.retention.check.interval.ms": 50,
    "log.initial.task.delay.ms": 0,
    "log.cleaner.backoff.ms": 50,
    "log.flush.offset.checkpoint.interval.ms": 50,
    "log.flush.start.offset.checkpoint.interval.ms": 50,
    "replica.high.watermark.checkpoint.interval.ms": 50,
    "log.segment.delete.delay.ms": 50,
    "offsets.topic.segment.bytes": 1000,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.segment.bytes": 1000,
    "transaction.state.log.num.partitions": 2,
    "offsets.retention.check.interval.ms": 50,
}
COMPACTED = {"cleanup.policy": "compact,delete", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
TOPICS = {
    "rolls": {"segment.bytes": "2000", "retention.bytes": "6000", "flush.ms": "50"},
    "often": {"flush.messages": "1"},
    "compact": {**COMPACTED, "retention.bytes": "20000"},
    "gone": {"segment.bytes": "1000"},
}


def done(futures: dict[object, object]) -> None:
    for future in futures.values():
        future.result()  # type: ignore[attr-defined]


def write(bootstrap: str, rounds: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for number in range(rounds):
        for topic in TOPICS:
            producer.produce(topic, key=b"%d" % (number % 5), value=os.urandom(300))
        producer.flush()


def in_transactions(bootstrap: str, transactional_id: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions()
    for number in range(8):
        producer.begin_transaction()
        producer.produce("compact", key=b"k", value=b"x" * 200)
        producer.produce("often", key=b"k", value=b"x" * 200)
        (producer.commit_transaction if number % 2 else producer.abort_transaction)()


def in_a_group(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.subscribe(["often", "compact"])
    read, until = 0, time.monotonic() + PATIENCE_S
    while read < 20 and time.monotonic() < until:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            read += 1
            with suppress(KafkaException):
                consumer.commit(message, asynchronous=False)
    assert read
    consumer.close()


def administer(admin: AdminClient) -> None:
    done(admin.create_partitions([NewPartitions("gone", 5)]))
    done(admin.delete_records([TopicPartition("rolls", 0, 15)]))
    entry = ConfigEntry("retention.ms", "1000000", incremental_operation=AlterConfigOpType.SET)
    done(admin.incremental_alter_configs([ConfigResource(ConfigResource.Type.TOPIC, "often", incremental_configs=[entry])]))


@pytest.mark.parametrize("settings", [{}, {"log.flush.interval.messages": 1}], ids=["", "flushed"])
def test_the_loop_waits_for_no_disk(start_broker: StartBroker, calls: Calls, settings: dict[str, int]) -> None:
    broker = start_broker(group_initial_rebalance_delay_ms=0, **PROPERTIES, **settings)
    calls.is_watching = True
    bootstrap = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    done(admin.create_topics([NewTopic(name, 1, config=config) for name, config in TOPICS.items()]))
    write(bootstrap, 25)
    with broker.client() as client:  # Nobody has looked for a coordinator, so there is no topic for offsets yet.
        assert commit(client, "early", {("often", 0): Offset(1)}) == {("often", 0): 0}
    for number in range(2):
        in_transactions(bootstrap, f"id{number}")
    in_a_group(bootstrap)
    with TransactionalProducer(broker.address, "raw") as raw:
        raw.init()
        broker.on_loop(lambda: use_up_producer_ids(broker))
        assert raw.init() == 0
    administer(admin)
    eventually(lambda: is_compacted(broker))
    write(bootstrap, 5)
    admin.delete_consumer_groups(["early"])["early"].result()
    done(admin.delete_topics(["compact", "gone"]))
    eventually(lambda: not list(broker.data_dir.glob("*-delete")) and not list(broker.data_dir.glob("rolls-0/*.deleted")))
    calls.is_watching = False  # Nobody is served while it ends.
    assert not calls.here
    assert calls.elsewhere["fsync"] > 50


def is_compacted(broker: RunningBroker) -> bool:
    cleaner = broker.node.manager.cleaner
    assert cleaner is not None
    with suppress(FileNotFoundError):
        text = (broker.data_dir / "cleaner-offset-checkpoint").read_text()
        return "compact 0" in text and "__" in text
    return False


def use_up_producer_ids(broker: RunningBroker) -> None:
    ids = broker.node.manager.producer_ids
    while ids.has(2):
        ids.next_id()
