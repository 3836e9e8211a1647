"""The cases for groups and transactions: each prepares a broker, and runs several times, as in `cases`.

| measure | a run's value | better |
|---|---|---|
| ms | from the first request of a rebalance to the last answer | less |
| requests/s, transactions/s | | more |
| MB/s | bytes of records written in one transaction, its end included | more |

Members are connections that send a client's requests, prepared in advance so that they cost no client's work. The raw client
discards the responses to heartbeats, commits and fetches; one response of each kind is checked before and after.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from confluent_kafka import Producer as Client
from tests.kafka.java import wait_until

from bench.broker.cases import MB, Measure, Run, by_request, check_end, new_topic
from bench.broker.clients import raw
from bench.broker.peers import TIMEOUT_S, Peer
from bench.broker.requests import FIRST_MS, batch, frame, records_for
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.records import Record
from tidelog.wire.codec import Message
from tidelog.wire.coordinator.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.headers import read_response
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

JOIN, SYNC, HEARTBEAT, COMMIT, FETCH, FIND, INIT, ADD, END, PRODUCE = 7, 5, 4, 8, 7, 3, 4, 3, 3, 9
SESSION_MS = 300_000
MEMBER_ID_REQUIRED = 79
GROUP, TRANSACTION = 0, 1
KIND = "consumer"
_names = count()


class Member:
    """One connection, and its identity in its group."""

    def __init__(self, port: int, group: str, topic: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group = group
        self.topic = topic
        self.id = ""
        self.generation = -1

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """Return the next frame, without its size."""
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def ask(self, message: Message, version: int, response: type[Any]) -> Any:
        self.send(frame(message, version))
        return read_response(response, version, self.receive())[1]

    def join_frame(self) -> bytes:
        metadata = encode_versioned(ConsumerProtocolSubscription([self.topic]), 1)
        protocols = [JoinGroupRequestProtocol(name, metadata) for name in ("range", "cooperative-sticky")]
        return frame(JoinGroupRequest(self.group, SESSION_MS, SESSION_MS, self.id, None, KIND, protocols), JOIN)

    def sync_frame(self, generation: int, members: Sequence[Member] = ()) -> bytes:
        assignments = [
            SyncGroupRequestAssignment(
                one.id, encode_versioned(ConsumerProtocolAssignment([AssignedTopic(self.topic, [number])]), 1)
            )
            for number, one in enumerate(members)
        ]
        return frame(SyncGroupRequest(self.group, generation, self.id, None, KIND, "range", assignments), SYNC)

    def first_join(self) -> None:
        """Get an id (KIP-394)."""
        self.send(self.join_frame())
        answer = read_response(JoinGroupResponse, JOIN, self.receive())[1]
        expect(answer.error_code == MEMBER_ID_REQUIRED, answer)
        self.id = answer.member_id

    def _exactly(self, size: int) -> bytes:
        data = self.socket.recv(size)
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("closed by the broker")
            data += more
        return data


def expect(is_right: bool, answer: object) -> None:
    if not is_right:
        raise RuntimeError(f"the broker answers {answer}")


@contextmanager
def connected(peer: Peer, group: str, topic: str, how_many: int) -> Iterator[list[Member]]:
    """This many connections to a broker on which the group's coordinator is available."""
    with ExitStack() as stack:
        members = [Member(peer.port, group, topic) for _ in range(how_many)]
        for one in members:
            stack.callback(one.socket.close)
        find(members[0], group, GROUP)
        yield members


def find(member: Member, key: str, kind: int) -> None:
    """Wait until the coordinator's topic exists and its partition is loaded."""

    def is_there() -> bool:
        answer = member.ask(FindCoordinatorRequest(key, kind), FIND, FindCoordinatorResponse)
        if answer.error_code or kind != GROUP:
            return not answer.error_code
        return not member.ask(OffsetFetchRequest(key, topics=None), FETCH, OffsetFetchResponse).error_code

    wait_until(is_there, f"the coordinator of {key}", TIMEOUT_S)


def form(members: list[Member]) -> Member:
    """The first member forms the group alone; then the others join, all at once. Return the leader."""
    first, others = members[0], members[1:]
    first.first_join()
    rebalance([first])
    for one in others:
        one.first_join()
    return rebalance([*others, first])


def rebalance(members: list[Member], leader: Member | None = None) -> Member:
    """All members send JoinGroup, in this order, and then SyncGroup; wait for the last response. Return the leader.

    A `leader` rejoins first, which starts a rebalance; the others rejoin once a heartbeat reports it, as real ones do.
    """
    joins = [one.join_frame() for one in members if one is not leader]
    if leader is not None:
        leader.send(leader.join_frame())
        other = members[members[0] is leader]
        while other.ask(HeartbeatRequest(other.group, other.generation, other.id), HEARTBEAT, HeartbeatResponse).error_code == 0:
            pass
        members = [*(one for one in members if one is not leader), leader]
    for one, sent in zip(members, joins, strict=False):
        one.send(sent)
    for one in members:
        answer = read_response(JoinGroupResponse, JOIN, one.receive())[1]
        expect(not answer.error_code, answer)
        one.generation = answer.generation_id
        if answer.members:
            leader = one
            expect(len(answer.members) == len(members), answer)
    for one in members:
        one.send(one.sync_frame(one.generation, members if one is leader else ()))
    for one in members:
        assigned = read_response(SyncGroupResponse, SYNC, one.receive())[1]
        expect(not assigned.error_code and len(assigned.assignment) > 0, assigned)
    assert leader is not None
    return leader


def timed(peer: Peer, work: Any) -> Measure:
    """Return the milliseconds that `work` takes, and the broker's processor time in milliseconds."""
    cpu, began = peer.cpu_seconds(), time.perf_counter()
    work()
    took = time.perf_counter() - began
    return Measure(took * 1000, (peer.cpu_seconds() - cpu) * 1000)


def new_group(how_many: int) -> object:
    """A hundred members join a new group: each gets an id, joins, and gets its assignment."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        topic = new_topic(peer, how_many)

        def run() -> Measure:
            with connected(peer, f"new-{next(_names)}", topic, how_many) as members:
                return timed(peer, lambda: form(members))

        yield run
        peer.delete_topic(topic)

    return prepare


def rebalanced(how_many: int, rounds: int) -> object:
    """All members of a group rejoin; the mean of several rounds."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        topic = new_topic(peer, how_many)
        with connected(peer, f"again-{next(_names)}", topic, how_many) as members:
            leader = form(members)

            def run() -> Measure:
                def again() -> None:
                    for _ in range(rounds):
                        rebalance(members, leader)

                all_of_them = timed(peer, again)
                return Measure(all_of_them.value / rounds, (all_of_them.cpu or 0) / rounds)

            yield run
        peer.delete_topic(topic)

    return prepare


class Alone(NamedTuple):
    """A group of one member, and its connection."""

    group: str
    member: Member


@contextmanager
def alone(peer: Peer, topic: str, how_many: int) -> Iterator[list[Alone]]:
    """This many groups of one member each."""
    with ExitStack() as stack:
        made = []
        for _ in range(how_many):
            group = f"alone-{next(_names)}"
            (member,) = stack.enter_context(connected(peer, group, topic, 1))
            member.first_join()
            rebalance([member])
            made.append(Alone(group, member))
        yield made


def heartbeats(groups: int, seconds: float) -> object:
    """Hundreds of groups that send heartbeats continuously."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        topic = new_topic(peer)
        with alone(peer, topic, groups) as made:
            asked = [HeartbeatRequest(one.group, one.member.generation, one.member.id) for one in made]
            frames = [frame(one, HEARTBEAT) for one in asked]

            def run() -> Measure:
                before = peer.cpu_seconds()
                measure = by_request(peer, before, raw(peer.port, frames, seconds=seconds))
                answer = made[-1].member.ask(asked[-1], HEARTBEAT, HeartbeatResponse)
                expect(not answer.error_code, answer)
                return measure

            yield run
        peer.delete_topic(topic)

    return prepare


def commit_of(one: Alone, topic: str, partitions: int, offset: int) -> OffsetCommitRequest:
    committed = [OffsetCommitRequestPartition(number, offset, committed_metadata="") for number in range(partitions)]
    return OffsetCommitRequest(
        one.group, one.member.generation, one.member.id, topics=[OffsetCommitRequestTopic(topic, partitions=committed)]
    )


def offsets_of(one: Alone, topic: str, partitions: int) -> OffsetFetchRequest:
    return OffsetFetchRequest(one.group, [OffsetFetchRequestTopic(topic, list(range(partitions)))])


def is_committed(one: Alone, topic: str, partitions: int) -> bool:
    """Commit an offset that no other commit has; return whether the broker stored it."""
    told = one.member.ask(commit_of(one, topic, partitions, 777), COMMIT, OffsetCommitResponse)
    expect(not any(p.error_code for t in told.topics for p in t.partitions), told)
    answer = one.member.ask(offsets_of(one, topic, partitions), FETCH, OffsetFetchResponse)
    return {p.committed_offset for t in answer.topics for p in t.partitions} == {777}


def commits(groups: int, partitions: int, seconds: float) -> object:
    """Groups that commit continuously, with one commit in flight each."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        topic = new_topic(peer, partitions)
        with alone(peer, topic, groups) as made:
            frames = [b"".join(frame(commit_of(one, topic, partitions, at), COMMIT) for at in range(100)) for one in made]

            def run() -> Measure:
                before = peer.cpu_seconds()
                measure = by_request(peer, before, raw(peer.port, frames, seconds=seconds))
                for one in (made[0], made[-1]):
                    # Requests that were in flight when the raw client ended may arrive after this.
                    wait_until(partial(is_committed, one, topic, partitions), "a commit to be there", TIMEOUT_S)
                return measure

            yield run
        peer.delete_topic(topic)

    return prepare


def offset_fetches(groups: int, partitions: int, seconds: float) -> object:
    """Groups that fetch their offsets continuously."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        topic = new_topic(peer, partitions)
        with alone(peer, topic, groups) as made:
            for one in made:
                one.member.ask(commit_of(one, topic, partitions, 5), COMMIT, OffsetCommitResponse)
            frames = [frame(offsets_of(one, topic, partitions), FETCH) for one in made]

            def run() -> Measure:
                before = peer.cpu_seconds()
                measure = by_request(peer, before, raw(peer.port, frames, seconds=seconds))
                answer = made[0].member.ask(offsets_of(made[0], topic, partitions), FETCH, OffsetFetchResponse)
                expect([p.committed_offset for t in answer.topics for p in t.partitions] == [5] * partitions, answer)
                return measure

            yield run
        peer.delete_topic(topic)

    return prepare


# --- transactions


def transactional_produce(batch_bytes: int, megabytes: int, *, is_transactional: bool = True) -> object:
    """One transaction with many batches, five in flight: MB/s up to its commit. Or the same batches by an idempotent producer."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        records = records_for(batch_bytes, 100)
        plain_bytes = len(batch(records, 100))
        requests = max(1, megabytes * MB // plain_bytes)
        value = bytes(batch(1, 100)[-101:-1])
        made = [Record(i, FIRST_MS + i, CREATE_TIME, None, value) for i in range(records)]

        def run() -> Measure:
            topic, name = new_topic(peer), f"transaction-{next(_names)}" if is_transactional else None
            member = Member(peer.port, "", topic)
            if name:
                find(member, name, TRANSACTION)
            started = []

            def has_begun() -> bool:
                answer = member.ask(InitProducerIdRequest(name, 60_000), INIT, InitProducerIdResponse)
                started.append(answer)
                return not answer.error_code

            wait_until(has_begun, "a producer id", TIMEOUT_S)
            who = (started[-1].producer_id, started[-1].producer_epoch)
            frames = b"".join(
                _produce_frame(topic, made, name, Producer(*who, base_sequence=i * records)) for i in range(requests)
            )
            before, began = peer.cpu_seconds(), time.perf_counter()
            if name:
                added = AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=name,
                    v3_and_below_producer_id=who[0],
                    v3_and_below_producer_epoch=who[1],
                    v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [0])],
                )
                answer = member.ask(added, ADD, AddPartitionsToTxnResponse)
                codes = [p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition]
                expect(codes == [0], answer)
            took_before = time.perf_counter() - began
            result = raw(peer.port, [frames], depth=5, count=requests)
            began = time.perf_counter()
            if name:
                answer = member.ask(EndTxnRequest(name, *who, committed=True), END, EndTxnResponse)
                expect(not answer.error_code, answer)
            seconds = took_before + result.seconds + time.perf_counter() - began
            cpu = peer.cpu_seconds() - before
            # The marker is written when the end of the transaction is acknowledged, or soon after.
            end = requests * records + is_transactional
            wait_until(lambda: peer.high_watermark(topic) >= end, "the marker", TIMEOUT_S)
            check_end(peer, topic, end)
            member.socket.close()
            peer.delete_topic(topic)
            gigabytes = requests * plain_bytes / 1e9
            return Measure(gigabytes * 1000 / seconds, cpu / gigabytes, result.p50_us, result.p99_us)

        yield run

    return prepare


def _produce_frame(topic: str, records: list[Record], name: str | None, producer: Producer) -> bytes:
    sent = bytes(build_batch_v2(records, producer=producer, is_transactional=name is not None))
    data = PartitionProduceData(index=0, records=sent)
    return frame(ProduceRequest(name, -1, 30_000, [TopicProduceData(topic, partition_data=[data])]), PRODUCE)


def client_transactions(records: int, transactions: int) -> object:
    """librdkafka's transactional producer: begin, some records of 100 B, commit, again and again."""

    @contextmanager
    def prepare(peer: Peer) -> Iterator[Run]:
        topic = new_topic(peer)
        value = b"v" * 100

        def run() -> Measure:
            settings = {"bootstrap.servers": peer.bootstrap, "transactional.id": f"client-{next(_names)}", "linger.ms": 0}
            client = Client(settings)
            client.init_transactions(TIMEOUT_S)
            before, began = peer.cpu_seconds(), time.perf_counter()
            for _ in range(transactions):
                client.begin_transaction()
                for _ in range(records):
                    client.produce(topic, value)
                client.commit_transaction(TIMEOUT_S)
            seconds = time.perf_counter() - began
            return Measure(transactions / seconds, (peer.cpu_seconds() - before) / (transactions / 1e6))

        yield run
        peer.delete_topic(topic)

    return prepare
