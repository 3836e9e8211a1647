"""What the controller of a ZooKeeper cluster asks, in any order and size: LeaderAndIsr, UpdateMetadata, StopReplica.

A broker as `tidelog serve` runs it, but for ZooKeeper, which is in memory; the test is the controller. What no controller of
Kafka's would say comes as well: whoever may connect can say it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.cluster.fake_zookeeper import NODE_ID, ControlledBroker, controlled
from tests.broker.cluster.zookeeper_requests import Topic, broker, led, metadata, partition, topic
from tests.broker.loop_turns import LoopTurns
from tests.broker.produce_helpers import produce_request
from tests.broker.raw import RawClient
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.model import TopicPartition
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState

ID, OTHER_ID = uuid.UUID(int=77), uuid.UUID(int=78)
MANY = 6_000
LONGEST_S = 0.025
"""As `test_widest`."""


@pytest.fixture
def member(tmp_path: Path) -> Iterator[ControlledBroker]:
    with controlled(tmp_path) as one:
        yield one


def codes(member: ControlledBroker, request: LeaderAndIsrRequest, version: int = 7) -> list[int]:
    """What a LeaderAndIsr is answered, partition by partition."""
    answer = member.ask(request, version)
    assert answer.error_code == 0
    if version < 5:
        return [one.error_code for one in answer.partition_errors]
    return [one.error_code for topic in answer.topics for one in topic.partition_errors]


def stopped(member: ControlledBroker, name: str, epoch: int, *, deletes: bool, controller_epoch: int = 1) -> list[int]:
    state = StopReplicaTopicState(name, [StopReplicaPartitionState(0, epoch, deletes)])
    answer = member.ask(StopReplicaRequest(1, controller_epoch=controller_epoch, broker_epoch=-1, topic_states=[state]), 3)
    return [answer.error_code] if answer.error_code else [one.error_code for one in answer.partition_errors]


def epoch_of(member: ControlledBroker, name: str) -> int:
    """In which epoch it leads partition 0; -1: it does not."""
    return member.on_loop(lambda: member.node.leadership.epoch_of(TopicPartition(name, 0)))


class TestSize:
    """Requests of more elements than are read on the loop: another thread reads them, and takes them apart afterwards."""

    @pytest.mark.parametrize("version", [4, 8])
    def test_metadata_is_taken_whole(self, member, version):
        topics = [topic(f"t{i}", partition(0, 2, 1, [2])) for i in range(MANY)]
        request = metadata([broker(NODE_ID, member.port), broker(2)], topics, is_old=version < 5)
        with LoopTurns(member) as turns:
            assert member.ask(request, version).error_code == 0
        assert turns.longest.seconds < LONGEST_S, turns.turns
        image = member.node.image
        assert member.on_loop(lambda: [len(image.topics), sorted(image.brokers)]) == [MANY, [NODE_ID, 2]]
        assert member.on_loop(lambda: image.partition(f"t{MANY - 1}", 0).leader) == 2

    @pytest.mark.parametrize("version", [2, 7])
    def test_leaders_are_taken_whole(self, member, version):
        """Most of them are refused, so that no thousands of folders are made."""
        topics = [
            topic("mine", partition(0)),
            *(topic(f"t{i}", partition(0, 2, 1, [2])) for i in range(MANY)),
            topic("last", partition(0)),
        ]
        with LoopTurns(member) as turns:
            found = codes(member, led(*topics), version)
        assert turns.longest.seconds < LONGEST_S, turns.turns
        assert found == [0, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * MANY, 0]
        assert (epoch_of(member, "mine"), epoch_of(member, "last")) == (0, 0)


class TestOrder:
    def test_a_former_controller(self, member):
        assert codes(member, led(topic("t", partition(0, epoch=3)), epoch=5)) == [0]
        for request, version in ((led(topic("t", partition(0, epoch=9)), epoch=4), 7), (metadata([], [], epoch=4), 8)):
            assert member.ask(request, version).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert stopped(member, "t", 9, deletes=True, controller_epoch=4) == [ErrorCode.STALE_CONTROLLER_EPOCH]
        assert epoch_of(member, "t") == 3
        assert member.on_loop(lambda: sorted(member.node.image.brokers)) == [NODE_ID]

    @pytest.mark.parametrize(
        ("state", "code"),
        [
            (partition(0, 2, 4, [1, 2]), ErrorCode.STALE_CONTROLLER_EPOCH),
            (partition(0, 2, 5, [1, 2], version=5), ErrorCode.STALE_CONTROLLER_EPOCH),
            (partition(0, 2, 5, [1, 2], version=4), ErrorCode.STALE_CONTROLLER_EPOCH),
            (partition(0, 2, -1, [1, 2]), ErrorCode.STALE_CONTROLLER_EPOCH),
            (partition(0, 2, 6, [2, 3]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    )
    def test_a_leader_that_is_none_any_more(self, member, state, code):
        assert codes(member, led(topic("t", partition(0, epoch=5)))) == [0]
        assert codes(member, led(topic("t", state))) == [code]
        assert epoch_of(member, "t") == 5

    def test_a_partition_twice_in_one(self, member):
        """The later one counts, as if they had come one after the other."""
        assert codes(member, led(topic("t", partition(0, epoch=5), partition(0, 2, 7, [1, 2])), leaders=[2])) == [0, 0]
        assert epoch_of(member, "t") == -1

    def test_a_session_that_is_over(self, member):
        request = led(topic("t", partition(0)), broker_epoch=0)
        assert member.ask(request, 7).error_code == ErrorCode.STALE_BROKER_EPOCH

    def test_stopped_in_an_older_epoch(self, member):
        assert codes(member, led(topic("t", partition(0, epoch=5)))) == [0]
        assert stopped(member, "t", 4, deletes=True) == [ErrorCode.FENCED_LEADER_EPOCH]
        assert epoch_of(member, "t") == 5
        assert stopped(member, "t", 5, deletes=True) == [0]
        assert stopped(member, "t", 5, deletes=True) == [0]
        assert not (member.data_dir / "t-0").exists()


class TestNoneSuch:
    @pytest.mark.parametrize("name", ["", ".", "..", "../outside", "a/b", "x" * 300, "ä"])
    def test_a_name_that_no_topic_has(self, member, name):
        """No folder of that name is made, here or elsewhere; what else the request says is done."""
        assert codes(member, led(topic(name, partition(0)), topic("t", partition(0)))) == [ErrorCode.INVALID_TOPIC_EXCEPTION, 0]
        request = metadata([broker(NODE_ID, member.port)], [topic(name, partition(0)), topic("u", partition(0))])
        assert member.ask(request, 8).error_code == 0
        assert stopped(member, name, 9, deletes=True) == [0]
        assert list(member.data_dir.parent.iterdir()) == [member.data_dir]
        assert sorted(path.name for path in member.data_dir.iterdir() if path.is_dir()) == ["t-0"]
        assert member.on_loop(lambda: sorted(member.node.image.topics)) == ["t", "u"]

    def test_a_number_that_no_partition_has(self, member):
        assert codes(member, led(topic("t", partition(-1), partition(1)))) == [ErrorCode.INVALID_TOPIC_EXCEPTION, 0]

    def test_an_id_that_another_topic_has(self, member):
        assert codes(member, led(topic("t", partition(0), topic_id=ID))) == [0]
        request = led(topic("u", partition(0), topic_id=ID), topic("v", partition(0), topic_id=OTHER_ID))
        assert codes(member, request) == [ErrorCode.INCONSISTENT_TOPIC_ID, 0]
        request = metadata([broker(NODE_ID, member.port)], [topic("u", partition(0), topic_id=ID)])
        assert member.ask(request, 8).error_code == 0
        assert member.on_loop(lambda: sorted(member.node.image.topics)) == ["t", "v"]

    def test_another_topic_of_that_name(self, member):
        """Its records are not given up for one that only has its name."""
        assert codes(member, led(topic("t", partition(0), topic_id=ID))) == [0]
        assert codes(member, led(topic("t", partition(0, epoch=9), topic_id=OTHER_ID))) == [ErrorCode.INCONSISTENT_TOPIC_ID]
        assert epoch_of(member, "t") == 0


def test_a_partition_is_deleted_that_a_producer_waits_for(member):
    """The producer is told, and what was not committed is gone."""
    replicas: Topic = topic("t", partition(0, replicas=[1, 2]))
    assert codes(member, led(replicas)) == [0]
    with RawClient(("127.0.0.1", member.port)) as producer:
        batch = bytes(build_batch_v2([Record(0, 1_700_000_000_000, 0, None, b"waits for broker 2")]))
        producer.send(produce_request([("t", 0, batch)]), 7)
        wait_until(
            lambda: member.on_loop(lambda: member.node.manager.logs[TopicPartition("t", 0)].log_end_offset) == 1, "it", PATIENCE_S
        )
        assert stopped(member, "t", 0, deletes=True) == [0]
        (answer,) = producer.receive().responses[0].partition_responses
        assert answer.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert not (member.data_dir / "t-0").exists()
