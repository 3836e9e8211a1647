"""Topics changed in steps: what concurrent requests about one name see, what shares a flush, ends in the middle."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.raw import RawClient
from tests.broker.test_topic_admin import new
from tests.patience import PATIENCE_S
from tidelog.broker.topics.topic_changes import Job
from tidelog.errors import StorageError
from tidelog.formats.names import parse_topic_partition_name
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.create_topics import CreateTopicsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

OK = ErrorCode.NONE


class Disk:
    """The metadata's disk: waits while it is held, fails if it is to; counts flushes that had something to write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.free.set()
        self.begun = threading.Event()
        self.flushes = 0
        self.has_failed = False
        write = MetadataStore._write

        def slow(store: MetadataStore, changes: Any) -> None:
            self.begun.set()
            assert self.free.wait(PATIENCE_S)
            self.flushes += 1
            if self.has_failed:
                raise OSError(5, "the disk is sick")
            write(store, changes)

        monkeypatch.setattr(MetadataStore, "_write", slow)

    @contextmanager
    def held(self) -> Iterator[None]:
        self.begun.clear()
        self.free.clear()
        try:
            yield
        finally:
            self.free.set()


@pytest.fixture
def disk(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def ask(broker: RunningBroker, request: Any, version: int) -> Any:
    with RawClient(broker.address) as client:
        return client.ask(request, version)


def create(broker: RunningBroker, *names: str, partitions: int = 2) -> dict[str, int]:
    response = ask(broker, CreateTopicsRequest(topics=[new(name, partitions) for name in names]), 5)
    return {one.name: one.error_code for one in response.topics}


def delete(broker: RunningBroker, *names: str) -> dict[str, int]:
    response = ask(broker, DeleteTopicsRequest(topic_names=list(names)), 5)
    return {one.name: one.error_code for one in response.responses}


def seen(broker: RunningBroker, *names: str, creates: bool = False) -> dict[str, tuple[int, int]]:
    response = ask(broker, MetadataRequest([MetadataRequestTopic(name=name) for name in names], creates), 9)
    return {one.name: (one.error_code, len(one.partitions)) for one in response.topics}


def folders(broker: RunningBroker) -> list[str]:
    names = [path.name for path in broker.data_dir.iterdir() if path.is_dir() and not path.name.endswith("-delete")]
    return sorted(name for name in names if parse_topic_partition_name(name).topic != "__cluster_metadata")


def test_others_are_served_while_the_disk_waits(broker: RunningBroker, disk: Disk, threads: ThreadPoolExecutor) -> None:
    with disk.held():
        waiting = threads.submit(create, broker, "a")
        assert disk.begun.wait(PATIENCE_S)
        assert seen(broker, "a") == {"a": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)}
        assert not waiting.done()
        assert folders(broker) == []
    assert waiting.result(PATIENCE_S) == {"a": OK}
    assert seen(broker, "a") == {"a": (OK, 2)}


def test_changes_of_one_name_come_one_after_the_other(broker: RunningBroker, disk: Disk, threads: ThreadPoolExecutor) -> None:
    with disk.held():
        first = threads.submit(create, broker, "a.b")
        assert disk.begun.wait(PATIENCE_S)
        others = [threads.submit(create, broker, name) for name in ("a.b", "a_b", "a.b")]
        automatic = threads.submit(seen, broker, "a.b", creates=True)
        assert not any(one.done() for one in (*others, automatic))
    assert first.result(PATIENCE_S) == {"a.b": OK}
    codes = [code for one in others for code in one.result(PATIENCE_S).values()]
    assert sorted(codes) == sorted([ErrorCode.INVALID_TOPIC_EXCEPTION, *[ErrorCode.TOPIC_ALREADY_EXISTS] * 2])
    automatic.result(PATIENCE_S)
    assert folders(broker) == ["a.b-0", "a.b-1"]


def test_a_topic_that_is_created_while_it_is_deleted_is_a_new_one(
    broker: RunningBroker, disk: Disk, threads: ThreadPoolExecutor
) -> None:
    create(broker, "a", partitions=3)
    before = broker.on_loop(lambda: broker.node.manager.topics()["a"].topic_id)
    with disk.held():
        deleted = threads.submit(delete, broker, "a")
        assert disk.begun.wait(PATIENCE_S)
        assert seen(broker, "a") == {"a": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)}
        created = threads.submit(create, broker, "a")
        again = threads.submit(delete, broker, "nothing")
        assert again.result(PATIENCE_S) == {"nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert not created.done()
    assert deleted.result(PATIENCE_S) == created.result(PATIENCE_S) == {"a": OK}
    assert seen(broker, "a") == {"a": (OK, 2)}
    assert broker.on_loop(lambda: broker.node.manager.topics()["a"].topic_id) != before


def test_all_topics_of_a_request_share_a_flush(broker: RunningBroker, disk: Disk) -> None:
    names = [f"t{number}" for number in range(300)]
    seen(broker, *names, creates=True)
    assert disk.flushes == 1
    assert seen(broker, *names) == dict.fromkeys(names, (OK, 1))
    assert set(delete(broker, *names).values()) == {OK}
    assert disk.flushes == 2


def test_changes_that_wait_together_share_a_flush_and_its_failure(
    broker: RunningBroker, disk: Disk, threads: ThreadPoolExecutor
) -> None:
    create(broker, "there")
    with disk.held():
        first = threads.submit(create, broker, "a")
        assert disk.begun.wait(PATIENCE_S)
        others = [threads.submit(create, broker, f"b{number}", "x") for number in range(3)]
        while broker.on_loop(lambda: len(broker.node.topic_changes._unflushed)) < 4:
            pass
        before = disk.flushes
        disk.has_failed = True
    assert first.result(PATIENCE_S) == {"a": ErrorCode.KAFKA_STORAGE_ERROR}
    for one in others:
        assert set(one.result(PATIENCE_S).values()) == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert disk.flushes - before <= 4
    assert folders(broker) == ["there-0", "there-1"]
    disk.has_failed = False
    assert create(broker, "a", "x", "b0") == {"a": OK, "x": OK, "b0": OK}
    broker.stop()
    broker.start()
    assert seen(broker, "there", "a", "x", "b0", "b1")["b1"] == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert seen(broker, "there", "a", "x", "b0") == dict.fromkeys(("there", "a", "x", "b0"), (OK, 2))


def test_who_asks_and_goes_leaves_a_whole_topic(broker: RunningBroker, disk: Disk) -> None:
    with disk.held(), RawClient(broker.address) as client:
        client.send(CreateTopicsRequest(topics=[new("a", 3)]), 5)
        assert disk.begun.wait(PATIENCE_S)
    assert create(broker, "a") == {"a": ErrorCode.TOPIC_ALREADY_EXISTS}
    assert seen(broker, "a") == {"a": (OK, 3)}


@pytest.mark.parametrize("steps", (0, 1, 2, 3, 4, 5, 7))
def test_a_broker_that_ends_in_the_middle(start_broker: StartBroker, steps: int) -> None:
    """After each number of steps of a creation, a deletion and an enlargement that go on side by side."""
    broker = start_broker()
    create(broker, "goes", "grows", partitions=20)
    node = broker.node
    works: list[Any] = []

    def begin() -> None:
        changes = {
            "comes": node.topics.creation("comes", 20, {}),
            "goes": node.topics.deletion(node.topics.get("goes")),  # type: ignore[arg-type]
            "grows": node.topics.enlargement("grows", 40),
        }
        for steps_of in changes.values():
            sent: Any = None
            try:
                for _ in range(steps):
                    step = steps_of.send(sent)
                    sent = None
                    if callable(step):
                        sent = step()
                    elif step is not None:
                        node.manager.metadata.settle(step)
            except StopIteration:
                pass
            works.append(steps_of)
        for one in works:
            one.close()

    broker.on_loop(begin)
    broker.stop()
    broker.start()
    counts = {name: count for name, (code, count) in seen(broker, "comes", "goes", "grows").items() if code == OK}
    assert counts.get("comes", 20) == 20
    assert counts["grows"] in (20, 40)
    assert "goes" not in counts or counts["goes"] == 20
    assert len(folders(broker)) == sum(counts.values())
    assert broker.on_loop(broker.node.manager.offline_partitions) == {}


def test_what_waits_when_the_broker_ends_is_given_up(broker: RunningBroker, disk: Disk) -> None:
    answers: list[Any] = []
    with disk.held():
        node = broker.node
        broker.on_loop(lambda: node.topic_changes.begin(Job("a", node.topics.creation("a", 2, {})), answers.append))
        broker.on_loop(lambda: node.topic_changes.begin(Job("a", node.topics.creation("a", 2, {})), answers.append))
        assert disk.begun.wait(PATIENCE_S)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
    stopping.join(PATIENCE_S)
    assert len(answers) == 2
    assert all(isinstance(one, StorageError) for one in answers) or folders(broker)
    broker.start()
    assert seen(broker, "a")["a"] in {(OK, 2), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)}
