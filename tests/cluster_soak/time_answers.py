"""Offsets for times: every leader gives the same answers, and they are those of a walk over all records."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from tests.broker.raw import RawClient
from tests.cluster_soak.soak_cluster import SoakCluster
from tests.kafka.java import wait_until
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

Place = tuple[str, int]
LATEST, EARLIEST, LARGEST = -1, -2, -3
VERSION = 7
PATIENCE_S = 600
ANSWER_S = 60
ALREADY = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


def asked_times(times: Sequence[int], seed: int, count: int) -> list[int]:
    """Return the ends, the largest, and times from before the first record to after the last one."""
    chance = Random(seed)
    low, high = min(times, default=0), max(times, default=0)
    return [LATEST, EARLIEST, LARGEST, low - 1, high, high + 1, *(chance.randint(low, high) for _ in range(count))]


def expected(times: Sequence[int], asked: int, *, is_append_time: bool = False) -> tuple[int, int]:
    """Return (offset, timestamp) for a time, by a walk over the timestamps of records 0, 1, ..."""
    if asked == LATEST:
        return len(times), -1
    if asked == EARLIEST:
        return 0, -1
    if asked == LARGEST:
        largest = max(times, default=-1)
        return (times.index(largest), largest) if times else (-1, -1)
    return next(((offset, time) for offset, time in enumerate(times) if time >= asked), (-1, -1))


def answers(cluster: SoakCluster, asked: Mapping[Place, Sequence[int]]) -> dict[tuple[Place, int], tuple[int, int]]:
    """Ask each partition's present leader; OSError where one refuses."""
    leaders: dict[int, list[Place]] = defaultdict(list)
    known = cluster.partitions(1)
    for place in asked:
        leaders[known[place].leader_id].append(place)
    found = {}
    for leader, places in leaders.items():
        with RawClient(cluster.address(leader), timeout_s=ANSWER_S) as client:
            for turn in range(max(len(asked[place]) for place in places)):
                wanted = {place: asked[place][turn] for place in places if turn < len(asked[place])}
                topics = [
                    ListOffsetsTopic(topic, [ListOffsetsPartition(number, -1, time)]) for (topic, number), time in wanted.items()
                ]
                response = client.ask(ListOffsetsRequest(-1, 0, topics), VERSION)
                for topic in response.topics:
                    for one in topic.partitions:
                        place = topic.name, one.partition_index
                        if one.error_code:
                            raise OSError(f"{place}: {ErrorCode(one.error_code).name}")
                        found[place, wanted[place]] = one.offset, one.timestamp
    return found


def settled_answers(cluster: SoakCluster, asked: Mapping[Place, Sequence[int]]) -> dict[tuple[Place, int], tuple[int, int]]:
    """Return the answers once all leaders give some: a new one says OFFSET_NOT_AVAILABLE until its followers have fetched."""
    found: dict[tuple[Place, int], tuple[int, int]] = {}

    def have_all() -> bool:
        try:
            found.update(answers(cluster, asked))
        except OSError:
            return False
        return True

    wait_until(have_all, "the leaders' answers for times", PATIENCE_S)
    return found


def elect(cluster: SoakCluster, places: Iterable[Place], turn: int) -> None:
    """Have each partition led by another broker than in the turn before: its replicas get another order, and the first leads."""
    brokers = sorted(cluster.brokers)
    order = {place: rotated(brokers, turn + index) for index, place in enumerate(places)}
    topics: dict[str, list[ReassignablePartition]] = defaultdict(list)
    for (topic, number), replicas in order.items():
        topics[topic].append(ReassignablePartition(number, replicas))
    wanted = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name, those) for name, those in topics.items()])
    preferred = ElectLeadersRequest(
        0, [TopicPartitions(name, [one.partition_index for one in those]) for name, those in topics.items()]
    )

    def are_elected() -> bool:
        try:
            with RawClient(cluster.address(brokers[0]), timeout_s=ANSWER_S) as client:
                assert client.ask(wanted, 0).error_code == ErrorCode.NONE
                client.ask(preferred, 2)
            seen = [cluster.partitions(node_id) for node_id in brokers]
        except OSError:
            return False
        return all(found[place].leader_id == replicas[0] for found in seen for place, replicas in order.items())

    wait_until(are_elected, "the replicas whose turn it is to lead", PATIENCE_S)


def rotated(brokers: Sequence[int], turn: int) -> list[int]:
    first = turn % len(brokers)
    return [*brokers[first:], *brokers[:first]]


def compare_leaders(cluster: SoakCluster, times: Mapping[Place, array[int]], turns: int, seed: int) -> tuple[int, list[str]]:
    """Elect each replica in turn; return how many answers were compared, and those that differ from the walk's."""
    asked = {place: asked_times(those, seed + index, 6) for index, (place, those) in enumerate(times.items())}
    right = {(place, time): expected(times[place], time) for place, those in asked.items() for time in those}
    wrong, compared = [], 0
    for turn in range(turns):
        elect(cluster, times, turn)
        for question, answer in settled_answers(cluster, asked).items():
            compared += 1
            if answer != right[question]:
                wrong.append(f"turn {turn}, {question}: {answer}, expected {right[question]}")
    return compared, wrong
