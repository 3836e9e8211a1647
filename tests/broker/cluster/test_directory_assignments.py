"""Which replicas are assigned to the broker's folder, in which requests, and what is sent again."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.cluster.fake_plane import FakePlane, registered, topic
from tidelog.broker.cluster.kraft import directory_assignments
from tidelog.broker.cluster.kraft.directory_assignments import AT_ONCE, LASTING, DirectoryAssignments, wait_s
from tidelog.broker.loop.retry_log import RetryLog
from tidelog.errors import BrokerUnreachableError, TidelogError
from tidelog.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED, directory_of
from tidelog.metadata.records import FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, RemoveTopicRecord
from tidelog.metadata.versions import DIRECTORIES_LEVEL, METADATA_VERSION
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Message
from tidelog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryDataResult,
    PartitionDataResult,
    TopicDataResult,
)

ME, OTHER = 1, 2
MINE, OLD = uuid.UUID(int=1 << 100), uuid.UUID(int=2 << 100)

Answer = Callable[[AssignReplicasToDirsRequest], AssignReplicasToDirsResponse | TidelogError]


def replicas_of(request: AssignReplicasToDirsRequest) -> list[tuple[uuid.UUID, int]]:
    (directory,) = request.directories
    assert directory.id == MINE
    return [(one.topic_id, partition.partition_index) for one in directory.topics for partition in one.partitions]


class Cluster:
    """A broker's plane, and controllers that answer as the test says; what they accept is in the metadata a little later."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self.plane = FakePlane()
        self.plane.answer_call = self._asked
        self.requests: list[AssignReplicasToDirsRequest] = []
        self.waits_s: list[float] = []
        self.answers: list[Answer] = []
        """What the first requests get; the later ones are accepted."""
        self.assignments = DirectoryAssignments(self.plane, MINE, sleep=self._sleep)
        self.plane.image.replay(registered(ME, log_dirs=(MINE,)))
        self.plane.image.replay(FeatureLevelRecord(METADATA_VERSION, DIRECTORIES_LEVEL))

    async def _sleep(self, delay_s: float) -> None:
        self.waits_s.append(delay_s)
        await asyncio.sleep(0)

    def _asked(self, request: Message) -> AssignReplicasToDirsResponse | TidelogError:
        assert isinstance(request, AssignReplicasToDirsRequest)
        self.requests.append(request)
        return (self.answers.pop(0) if self.answers else self.accepted)(request)

    def accepted(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        return self.answered(request, lambda replica: ErrorCode.NONE)

    def answered(
        self, request: AssignReplicasToDirsRequest, code: Callable[[tuple[uuid.UUID, int]], ErrorCode]
    ) -> AssignReplicasToDirsResponse:
        topics: dict[uuid.UUID, TopicDataResult] = {}
        for replica in replicas_of(request):
            result = PartitionDataResult(replica[1], code(replica))
            topics.setdefault(replica[0], TopicDataResult(replica[0])).partitions.append(result)
            if result.error_code == ErrorCode.NONE:
                self.assign(replica, MINE)
        return AssignReplicasToDirsResponse(directories=[DirectoryDataResult(MINE, list(topics.values()))])

    def assign(self, replica: tuple[uuid.UUID, int], directory: uuid.UUID) -> None:
        self.plane.image.replay(PartitionChangeRecord(replica[1], replica[0], directories=[directory, OLD]))
        self.placed(replica[0])

    def create(self, directories: Iterable[list[uuid.UUID]], replicas: tuple[int, ...] = (ME, OTHER)) -> uuid.UUID:
        """Create a topic whose partitions are assigned to these directories."""
        wanted = list(directories)
        records = topic(f"t{len(self.plane.image.topics)}", *((list(replicas), list(replicas), ME) for _ in wanted))
        for record, assigned in zip(records[1:], wanted, strict=True):
            assert isinstance(record, PartitionRecord)
            record.directories = assigned
        for one in records:
            self.plane.image.replay(one)
        topic_id: uuid.UUID = records[0].topic_id  # type: ignore[attr-defined]
        self.placed(topic_id)
        return topic_id

    def placed(self, topic_id: uuid.UUID) -> None:
        for partition in self.plane.image.topics_by_id[topic_id].partitions.values():
            self.assignments.placed(topic_id, partition)

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Let it send until nothing is left, or until that is so."""
        self._runner.run(self._until(until or (lambda: self.assignments.pending == 0)))

    async def _until(self, condition: Callable[[], bool]) -> None:
        running = asyncio.ensure_future(self.assignments.run())
        try:
            await asyncio.sleep(0)
            while not condition():
                assert not running.done(), running.result()
                await asyncio.sleep(0)
            for _ in range(5):
                await asyncio.sleep(0)
            assert not running.done(), running.result()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with asyncio.Runner() as runner:
        yield Cluster(runner)


def test_what_is_assigned_elsewhere_is_assigned_here(cluster: Cluster) -> None:
    wanted = [[OLD, OLD], [MINE, OLD], [LOST, OLD], [UNASSIGNED, OLD], [MIGRATING, OLD], []]
    topic_id = cluster.create(wanted)
    cluster.run()
    (request,) = cluster.requests
    assert (request.broker_id, request.broker_epoch) == (ME, cluster.plane.broker_epoch)
    assert replicas_of(request) == [(topic_id, number) for number in (0, 2, 3, 4, 5)]
    cluster.placed(topic_id)
    cluster.run()
    assert len(cluster.requests) == 1


def test_requests_are_of_bounded_size_and_one_at_a_time(cluster: Cluster) -> None:
    topics = [cluster.create([[OLD, OLD]] * 500) for _ in range(5)]
    cluster.run()
    assert [len(replicas_of(one)) for one in cluster.requests] == [AT_ONCE, AT_ONCE, 2500 - 2 * AT_ONCE]
    sent = [replica for request in cluster.requests for replica in replicas_of(request)]
    assert sent == [(topic_id, number) for topic_id in topics for number in range(500)]
    assert cluster.waits_s[:2] == [0, 0] and cluster.waits_s[2] == pytest.approx(0.1, rel=0.03)


@pytest.mark.parametrize(
    ("failures", "waiting", "expected"),
    [(0, 1, 0.1), (0, AT_ONCE, 0.1), (0, AT_ONCE + 1, 0), (1, 1, 0.2), (1, 5000, 0.2), (6, 1, 6.4), (7, 1, 10), (10**6, 1, 10)],
)
def test_how_long_a_request_waits(failures: int, waiting: int, expected: float) -> None:
    assert wait_s(failures, waiting) == pytest.approx(expected)


def test_a_request_that_fails_is_sent_again(cluster: Cluster) -> None:
    topic_id = cluster.create([[OLD, OLD]] * 3)

    def stale(request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        cluster.plane.broker_epoch += 1
        return AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)

    epoch = cluster.plane.broker_epoch
    cluster.answers = [lambda request: BrokerUnreachableError("gone"), stale]
    cluster.run()
    assert [replicas_of(one) for one in cluster.requests] == [[(topic_id, number) for number in range(3)]] * 3
    assert [one.broker_epoch for one in cluster.requests] == [epoch, epoch, epoch + 1]
    assert cluster.waits_s == [pytest.approx(one, rel=0.03) for one in (0.1, 0.2, 0.4)]
    cluster.create([[OLD, OLD]])
    cluster.run()
    assert cluster.waits_s[3] == pytest.approx(0.1, rel=0.03), "a success is a new beginning"


def test_a_replica_that_is_refused_or_not_answered_is_sent_again_alone(cluster: Cluster) -> None:
    topic_id = cluster.create([[OLD, OLD]] * 3)

    def without_the_second(request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        response = cluster.accepted(request)
        del response.directories[0].topics[0].partitions[1]
        return response

    cluster.answers = [
        lambda request: cluster.answered(
            request, lambda replica: ErrorCode.NONE if replica[1] == 0 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ),
        lambda request: cluster.answered(
            request, lambda replica: ErrorCode.NONE if replica[1] == 1 else ErrorCode.NOT_LEADER_OR_FOLLOWER
        ),
        lambda request: AssignReplicasToDirsResponse(),
    ]
    cluster.run()
    assert [[number for _, number in replicas_of(one)] for one in cluster.requests] == [[0, 1, 2], [1, 2], [2], [2]]
    assert cluster.assignments.pending == 0
    cluster.answers = [without_the_second]
    second = cluster.create([[OLD, OLD]] * 2)
    cluster.run()
    assert replicas_of(cluster.requests[-1]) == [(second, 0), (second, 1)], "what the metadata has is not sent again"
    assert topic_id != second


def test_what_is_no_longer_to_be_assigned_is_dropped(cluster: Cluster) -> None:
    deleted, kept = cluster.create([[OLD, OLD]]), cluster.create([[OLD, OLD]] * 3)

    def changed(request: AssignReplicasToDirsRequest) -> TidelogError:
        for record in (
            RemoveTopicRecord(deleted),
            PartitionChangeRecord(0, kept, replicas=[OTHER], directories=[OLD]),
            PartitionChangeRecord(1, kept, directories=[MINE, OLD]),
        ):
            cluster.plane.image.replay(record)
        return BrokerUnreachableError("gone")

    cluster.answers = [changed]
    cluster.run()
    assert [replicas_of(one) for one in cluster.requests] == [
        [(deleted, 0), (kept, 0), (kept, 1), (kept, 2)],
        [(kept, 2)],
    ]


def test_nothing_is_sent_below_3_7(cluster: Cluster) -> None:
    """And all of it once the cluster is upgraded, without another change of the partitions."""
    cluster.plane.image.replay(FeatureLevelRecord(METADATA_VERSION, DIRECTORIES_LEVEL - 1))
    cluster.create([[]] * 2)
    cluster.run(lambda: True)
    assert not cluster.requests and cluster.assignments.pending == 2
    cluster.plane.image.replay(FeatureLevelRecord(METADATA_VERSION, DIRECTORIES_LEVEL))
    cluster.assignments.metadata_version_changed()
    cluster.run()
    assert [len(replicas_of(one)) for one in cluster.requests] == [2]


def test_only_failures_that_last_are_logged(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    cluster.assignments._log = RetryLog(directory_assignments.logger, now_s=lambda: now_s)
    cluster.create([[OLD, OLD]])

    def gone(request: AssignReplicasToDirsRequest) -> TidelogError:
        nonlocal now_s
        now_s += 10
        return BrokerUnreachableError("gone")

    refused = AssignReplicasToDirsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    cluster.answers = [gone] * (LASTING - 1 + 12) + [lambda request: refused] * 3
    with caplog.at_level(logging.INFO, "tidelog.broker"):
        cluster.run()
    said = [record.getMessage().partition(" yet: ")[2] for record in caplog.records if record.levelno == logging.WARNING]
    more = " (not logged meanwhile: 5)"
    assert said == ["gone", f"gone{more}", f"the controller answers UNSUPPORTED_VERSION{more}"]
    assert caplog.records[-1].getMessage() == "1 replicas were assigned to directory.id AAAAEAAAAAAAAAAAAAAAAA"


CODES = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@given(st.lists(st.lists(st.sampled_from([OLD, MINE, LOST, UNASSIGNED]), max_size=4), max_size=4), st.data())
def test_whatever_controllers_answer_all_replicas_are_assigned_in_the_end(
    topics: list[list[uuid.UUID]], data: st.DataObject
) -> None:
    with asyncio.Runner() as runner:
        check(Cluster(runner), topics, data)


def check(cluster: Cluster, topics: list[list[uuid.UUID]], data: st.DataObject) -> None:
    for directories in topics:
        cluster.create([one, OLD] for one in directories)
    strangers = cluster.create([[OLD]], replicas=(OTHER,)) if data.draw(st.booleans()) else None

    def any_answer(request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse | TidelogError:
        kind = data.draw(st.sampled_from(["unreachable", "refused", "deleted", "some"]))
        image = cluster.plane.image
        if kind == "deleted" and image.topics:
            image.replay(RemoveTopicRecord(next(iter(image.topics_by_id))))
        if kind == "refused":
            return AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        if kind == "some":
            return cluster.answered(request, lambda replica: data.draw(st.sampled_from(CODES)))
        return BrokerUnreachableError("gone")

    cluster.answers = [any_answer] * data.draw(st.integers(0, 6))
    cluster.run()
    for one in cluster.plane.image.topics_by_id.values():
        for partition in one.partitions.values():
            expected = None if one.topic_id == strangers else MINE
            assert directory_of(partition, ME) == expected
    assert all((strangers, 0) not in replicas_of(request) for request in cluster.requests)
