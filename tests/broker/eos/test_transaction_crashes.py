"""A broker that dies between any two of its appends: a transaction has happened in all of its logs and groups, or in none.

After each append of a producer's life the broker starts again from what a kill would have left. Then one of two goes on: the same
producer, which asks again for what it had no answer to, or another one of its transactional id. A third start dies, too, after
each append that the second one made by itself.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.eos.crash_points import PROPERTIES, CrashPoint, CrashPoints
from tests.broker.groups.offset_requests import NOTHING, Offset, commit_in_transaction, fetch
from tests.broker.produce_helpers import answers, produce_request
from tests.broker.raw import RawClient
from tests.patience import PATIENCE_S
from tidelog.records.batch import CREATE_TIME, iter_headers
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.records import Record, iter_records
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

ID, GROUP = "transactional", "group"
TOPICS = ("a", "b")
SOURCE = ("a", 0)
NOW_MS = int(time.time() * 1000)  # As markers have it: all is in one segment, and one fetch has it.
AGAIN: set[int] = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}
FENCED: set[int] = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
SOAK = bool(os.environ.get("TIDELOG_SOAK"))
DONE: set[int] = {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}


def insist(ask: Callable[[], int]) -> int:
    """Ask until there is an answer other than to ask again; return it."""
    deadline = time.monotonic() + PATIENCE_S
    while (code := ask()) in AGAIN:
        if time.monotonic() > deadline:
            raise TimeoutError(ErrorCode(code).name)
    return code


class Life(NamedTuple):
    """A producer that has its id, and what it does: transactions of two records in each topic and an offset of a group."""

    producer_id: int
    epoch: int
    first: int
    """The number of its first transaction."""

    def steps(self, number: int, *, is_commit: bool) -> Iterator[tuple[str, Callable[[RawClient], int]]]:
        """Its `number`th transaction, request by request; each returns an error code. Asked again, each does nothing more."""
        me = self.producer_id, self.epoch

        def add(client: RawClient) -> int:
            topics = [AddPartitionsToTxnTopic(name, [0]) for name in TOPICS]
            response = client.ask(AddPartitionsToTxnRequest([], ID, *me, topics), 3)
            told = [one for topic in response.results_by_topic_v3_and_below for one in topic.results_by_partition]
            return max(int(one.partition_error_code) for one in told)

        def produce(topic: str) -> Callable[[RawClient], int]:
            records = [Record(i, NOW_MS, CREATE_TIME, None, b"%d" % (2 * number + i)) for i in range(2)]

            def send(client: RawClient) -> int:
                batch = bytes(build_batch_v2(records, producer=Producer(*me, 2 * (number - self.first)), is_transactional=True))
                response = client.ask(produce_request(batch, topic=topic, transactional_id=ID), 9)
                return answers(response)[topic, 0].error_code

            return send

        def send_offsets(client: RawClient) -> int:
            return commit_in_transaction(client, GROUP, {SOURCE: Offset(number + 1)}, ID, me, 3)[SOURCE]

        yield "partitions", add
        for topic in TOPICS:
            yield f"records of {topic}", produce(topic)
        yield "the group", lambda client: int(client.ask(AddOffsetsToTxnRequest(ID, *me, GROUP), 3).error_code)
        yield "offsets", send_offsets
        yield "the end", lambda client: int(client.ask(EndTxnRequest(ID, *me, is_commit), 3).error_code)


def initialize(client: RawClient, first: int) -> Life:
    """Be the transactional id's producer from now on."""
    found: list[Any] = []

    def ask() -> int:
        found.append(client.ask(InitProducerIdRequest(ID, 60_000), 4))
        return int(found[-1].error_code)

    assert insist(lambda: coordinator(client)) == 0
    assert insist(ask) == 0
    return Life(found[-1].producer_id, found[-1].producer_epoch, first)


def coordinator(client: RawClient) -> int:
    found = client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]), 4)
    return int(found.coordinators[0].error_code)


def committed_values(client: RawClient, topic: str) -> list[int]:
    """Read a topic with read_committed; fails if something is still open in it."""
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=1, topics=[FetchTopic(topic, partitions=[partition])])
    (found,) = client.ask(request, 11).responses[0].partitions
    assert (found.error_code, found.last_stable_offset) == (0, found.high_watermark)
    aborted = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions)
    values: list[int] = []
    open_until_marker: set[int] = set()
    for header in iter_headers(found.records or b""):
        if header.is_control:
            open_until_marker.discard(header.producer_id)
            continue
        while aborted and aborted[0][0] <= header.base_offset:
            open_until_marker.add(aborted.pop(0)[1])
        if header.producer_id not in open_until_marker:
            data = bytes(found.records)[header.position : header.end_position]
            values += [int(record.value or b"") for record in iter_records(header, data)]
    assert not found.records or header.next_offset == found.high_watermark
    return values


def is_settled(client: RawClient) -> bool:
    """Whether no transaction is open, in the logs and in the group."""
    for topic in TOPICS:
        asked = [ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-1)])]
        told = [client.ask(ListOffsetsRequest(-1, level, asked), 5).topics[0].partitions[0] for level in (0, 1)]
        if told[0].offset != told[1].offset:
            return False
    offsets = fetch(client, GROUP, [SOURCE], 7, require_stable=True)
    if isinstance(offsets, int):
        assert offsets in AGAIN
        return False
    return offsets[SOURCE].error_code not in AGAIN


def transactions(client: RawClient) -> list[int]:
    """Return the numbers of the transactions that happened; they did so everywhere, and nothing is open."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_settled(client):
        if time.monotonic() > deadline:
            raise TimeoutError("a transaction is open")
    values = [committed_values(client, topic) for topic in TOPICS]
    assert values[0] == values[1]
    found = [each // 2 for each in values[0][::2]]
    assert values[0] == [2 * each + i for each in found for i in range(2)]
    expected = Offset(found[-1] + 1) if found else NOTHING
    assert fetch(client, GROUP, [SOURCE], 7, require_stable=True) == {SOURCE: expected}
    return found


def do(client: RawClient, life: Life, plan: dict[int, bool], after: tuple[int, str] | None = None) -> None:
    """Do transactions by number, True to commit; `after`, a number and a step, is where to begin."""
    for number, is_commit in plan.items():
        for name, ask in life.steps(number, is_commit=is_commit):
            if after is None or after == (number, name):
                after = None
                assert insist(lambda ask=ask: ask(client)) in DONE, (number, name)  # type: ignore[misc]


class Lived(NamedTuple):
    """What a producer did, and the folder after each append."""

    life: Life
    points: list[CrashPoint]

    def happened(self, point: CrashPoint) -> list[int]:
        """The transactions that must have happened when it died there: those whose end was begun."""
        return [n for n, is_commit in PLAN.items() if is_commit and any(one.step == f"{n} the end" for one in self.until(point))]

    def until(self, point: CrashPoint) -> list[CrashPoint]:
        return self.points[: point.number + 1]


PLAN = {0: True, 1: False}


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    folder = tmp_path_factory.mktemp("lived")
    broker = RunningBroker(folder / "data", **PROPERTIES)
    with pytest.MonkeyPatch.context() as patch, broker.client() as client:
        for topic in TOPICS:
            broker.create_topic(topic)
        points = CrashPoints(broker.data_dir, folder)
        points.install(patch)
        lives: list[Life] = []
        points.step("an id", lambda: lives.append(initialize(client, 0)))
        for number, is_commit in PLAN.items():
            for name, ask in lives[0].steps(number, is_commit=is_commit):

                def act(ask: Callable[[RawClient], int] = ask, name: str = name) -> None:
                    assert insist(lambda: ask(client)) == 0
                    if name == "the end":  # The answer does not wait for all of it.
                        transactions(client)

                points.step(f"{number} {name}", act)
    broker.stop()
    # Each step was written: one by one, the end as decision, three markers and completion.
    assert Counter(point.step for point in points.points)["0 the end"] == 5
    return Lived(lives[0], points.points)


def copied(point: CrashPoint, folder: Path) -> Path:
    """The folder at a point, to go on with; others begin there, too."""
    return Path(shutil.copytree(point.folder, folder / point.folder.name))


def test_another_producer_goes_on(lived: Lived, tmp_path: Path, start_broker: StartBroker) -> None:
    for point in lived.points[:: 1 if SOAK else 2]:
        another_goes_on(lived, point, start_broker(copied(point, tmp_path), **PROPERTIES))


def another_goes_on(lived: Lived, point: CrashPoint, broker: RunningBroker) -> None:
    with broker.client() as client:
        new = initialize(client, 9)
        assert new[:2] > lived.life[:2], point
        assert transactions(client) == lived.happened(point), point
        for is_commit in (True, False):
            refused = client.ask(EndTxnRequest(ID, *lived.life[:2], is_commit), 3).error_code
            assert refused in FENCED, point
        do(client, new, {9: True})
        assert transactions(client) == [*lived.happened(point), 9]
    broker.stop()


def test_the_same_producer_goes_on(lived: Lived, tmp_path: Path, start_broker: StartBroker) -> None:
    for point in lived.points[1 :: 1 if SOAK else 2]:
        if point.step == "an id":
            continue
        broker = start_broker(copied(point, tmp_path), **PROPERTIES)
        number, _, name = point.step.partition(" ")
        plan = {n: is_commit for n, is_commit in PLAN.items() if n >= int(number)} | {2: True}
        with broker.client() as client:
            assert insist(lambda: coordinator(client)) == 0
            do(client, lived.life, plan, after=(int(number), name))
            assert transactions(client) == [n for n, is_commit in (PLAN | plan).items() if is_commit], point
        broker.stop()


@pytest.mark.parametrize("step", ["1 the group", "0 the end", "1 the end"])
def test_what_goes_on_dies_too(
    lived: Lived, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_broker: StartBroker
) -> None:
    point = next(each for each in lived.points if each.step == step)
    folder = copied(point, tmp_path)
    points = CrashPoints(folder, tmp_path / "again")

    def recover() -> None:
        broker = start_broker(folder, **PROPERTIES)
        with broker.client() as client:
            initialize(client, 9)
            assert transactions(client) == lived.happened(point)
        broker.stop()

    with monkeypatch.context() as patch:
        points.install(patch)
        points.step("recovery", recover)
    assert len(points.points) >= 4
    for each in points.points:
        another_goes_on(lived, point, start_broker(each.folder, **PROPERTIES))
