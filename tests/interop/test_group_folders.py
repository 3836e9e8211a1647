"""Groups in folders that change hands: what one broker was reported, the other one says, word for word.

| a group | of |
|---|---|
| simple | offsets alone, with words, epochs, one with a time of its own to end at |
| joined, static | a member, which is still there |
| left | a member that has left |
| transactions | one that was committed, one that was aborted, one that is open |
| only-open | nothing but the open transaction |
| some-deleted, deleted | offsets that were deleted |

Kafka 3.9.1 and 2.4.1 write them; Tidelog serves the folder, changes all of them, and is asked again after a start, or a kill;
Kafka opens it again. And the other way round: a folder of Tidelog's own, whose groups Kafka takes over by `tidelog handover`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pytest

import tidelog
from tests.broker.groups.members import Member
from tests.broker.groups.offset_requests import (
    Offset,
    commit,
    commit_in_transaction,
    delete_groups,
    delete_offsets,
    fetch,
)
from tests.broker.raw import RawClient
from tests.interop.gate import first_of
from tests.interop.test_handover import hand_over
from tests.kafka import Kafka241, Kafka391
from tests.kafka.clients import create_topics
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.broker.coordinators.groups.group_records import group_entry, read_groups
from tidelog.groups.offset_records import offset_entry
from tidelog.records.batch import iter_headers
from tidelog.records.records import iter_records
from tidelog.records.state_batches import StateBatch, StateRecord
from tidelog.wire.codec import Message
from tidelog.wire.coordinator.consumer_protocol import ConsumerProtocolSubscription
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.list_groups import ListGroupsRequest

EVENTS = [("events", 0), ("events", 1), ("events", 2)]
GROUPS = ["simple", "joined", "static", "left", "transactions", "only-open", "some-deleted", "deleted"]
SUBSCRIPTION = {"range": encode_versioned(ConsumerProtocolSubscription(["events"]), 1)}
SESSION_MS = 1_800_000
TRANSACTION_MS = 900_000

NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class Versions(NamedTuple):
    """The newest of what both brokers have."""

    join: int
    commit: int
    fetch: int
    txn_commit: int
    describe: int
    list_groups: int
    init: int
    end: int

    @property
    def has_static(self) -> bool:
        return self.join >= 5


NEWEST = Versions(join=9, commit=9, fetch=9, txn_commit=4, describe=5, list_groups=5, init=4, end=3)
OF_2_4 = Versions(join=4, commit=8, fetch=6, txn_commit=2, describe=5, list_groups=3, init=2, end=1)


def insist(ask: Callable[[], Any], code_of: Callable[[Any], int] = lambda answer: int(answer.error_code)) -> Any:
    """Ask until the coordinator is ready; return its answer, which is no error."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = ask()
        code = ErrorCode(code_of(answer))
        if code not in NOT_YET:
            assert code is ErrorCode.NONE, answer
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(answer)
        time.sleep(0.05)


class Side:
    """A broker that is asked, and told."""

    def __init__(self, bootstrap: str, versions: Versions) -> None:
        host, port = bootstrap.split(":")
        self.address = (host, int(port))
        self.versions = versions
        self.client = RawClient(self.address)
        self.members: list[Member] = []

    def __enter__(self) -> Self:
        """Wait until its coordinators are ready."""
        for key_type, key in enumerate(("simple", "copier")):
            insist(lambda: self.client.ask(FindCoordinatorRequest(key, key_type), 1))  # noqa: B023
        insist(lambda: self.client.ask(ListGroupsRequest(), 0))
        for group in GROUPS:  # They may be of several partitions.
            insist(lambda: fetch(self.client, group, EVENTS, 5), lambda answer: answer if isinstance(answer, int) else 0)  # noqa: B023
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for client in (self.client, *(one.client for one in self.members)):
            client.close()

    def ask(self, message: Message, version: int) -> Any:
        return self.client.ask(message, version)

    def commit(self, group: str, offsets: dict[tuple[str, int], Offset], version: int | None = None, **more: Any) -> None:
        codes = commit(self.client, group, offsets, version or self.versions.commit, **more)
        assert codes == dict.fromkeys(offsets, 0)

    def someone(self, group: str, instance_id: str | None) -> Member:
        one = Member(
            self.address,
            group,
            instance_id=instance_id,
            protocols=SUBSCRIPTION,
            session_timeout_ms=SESSION_MS,
            client_id=f"a client of {group}",
            version=self.versions.join,
        )
        self.members.append(one)
        return one

    def member(self, group: str, instance_id: str | None = None) -> Member:
        """A member of its group, with an assignment and an offset."""
        one = self.someone(group, instance_id)
        one.enter()
        assert not one.joined().error_code
        one.sync({one.member_id: b"what it is to read"})
        assert not one.synced().error_code
        who: dict[str, Any] = {"generation_id_or_member_epoch": one.generation_id, "member_id": one.member_id}
        self.commit(group, {EVENTS[0]: Offset(7, metadata=group)}, **who)
        return one

    def producer(self, transactional_id: str) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id, TRANSACTION_MS)
        answer = insist(lambda: self.ask(request, self.versions.init))
        return answer.producer_id, answer.producer_epoch

    def in_transaction(
        self, transactional_id: str, producer: tuple[int, int], group: str, offsets: dict[tuple[str, int], Offset]
    ) -> None:
        request = AddOffsetsToTxnRequest(transactional_id, *producer, group)
        insist(lambda: self.ask(request, self.versions.end))
        codes = commit_in_transaction(self.client, group, offsets, transactional_id, producer, self.versions.txn_commit)
        assert codes == dict.fromkeys(offsets, 0)

    def end(self, transactional_id: str, producer: tuple[int, int], *, is_commit: bool) -> None:
        request = EndTxnRequest(transactional_id, *producer, committed=is_commit)
        insist(lambda: self.ask(request, self.versions.end))

    def settled(self, *committed: tuple[str, tuple[str, int], int]) -> None:
        """Wait until transactions have committed these (group, partition, offset), and none but the open one is to end."""
        wait_until(lambda: all(self.is_told(*one) for one in committed), f"{committed}, as committed", PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while self.versions.fetch >= 7:
            found = fetch(self.client, "transactions", EVENTS[:2], self.versions.fetch, require_stable=True)
            if isinstance(found, dict) and not any(one.error_code for one in found.values()):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"offsets are not stable yet: {found}")
            time.sleep(0.05)

    def is_told(self, group: str, place: tuple[str, int], offset: int) -> bool:
        found = fetch(self.client, group, [place], self.versions.fetch)
        return isinstance(found, dict) and found[place].offset == offset

    def answers(self) -> dict[str, Any]:
        """What the broker says of all groups."""
        versions = self.versions
        said: dict[str, Any] = {}
        listed = insist(lambda: self.ask(ListGroupsRequest(), versions.list_groups)).groups
        said["list"] = {one.group_id: (one.protocol_type, one.group_state, one.group_type) for one in listed}
        for group in self.ask(DescribeGroupsRequest(GROUPS), versions.describe).groups:
            group.members.sort(key=lambda member: member.member_id)
            group.authorized_operations = 0  # Nobody has asked, which 2.4.1 says in another number.
            said[f"describe {group.group_id}"] = group
        for group in GROUPS:
            said[f"offsets {group}"] = fetch(self.client, group, None, versions.fetch)
            if versions.fetch >= 7:
                said[f"stable {group}"] = fetch(self.client, group, EVENTS, versions.fetch, require_stable=True)
        return said


class Told(NamedTuple):
    """Who goes on where the other broker left them."""

    joined: Member
    static: Member | None
    open_producer: tuple[int, int]


def tell(side: Side) -> Told:
    """Have all groups of the module's table written."""
    epoch = 3 if side.versions.commit >= 6 else -1
    side.commit("simple", {EVENTS[0]: Offset(1, epoch, "words"), EVENTS[1]: Offset(2**40)})
    side.commit("simple", {EVENTS[2]: Offset(5, metadata="ü")}, 4, retention_time_ms=86_400_000)
    joined = side.member("joined")
    static = side.member("static", "an instance") if side.versions.has_static else None
    side.member("left").leave()
    side.commit("transactions", {EVENTS[0]: Offset(10), EVENTS[2]: Offset(12)})
    for transactional_id, partition, is_commit in (("copier", 0, True), ("another", 1, False), ("a third", 1, True)):
        producer = side.producer(transactional_id)
        side.in_transaction(transactional_id, producer, "transactions", {EVENTS[partition]: Offset(20, metadata="in one")})
        side.end(transactional_id, producer, is_commit=is_commit)
    side.settled(("transactions", EVENTS[0], 20), ("transactions", EVENTS[1], 20))
    open_producer = side.producer("open")
    side.in_transaction("open", open_producer, "transactions", {EVENTS[2]: Offset(30)})
    side.in_transaction("open", open_producer, "only-open", {EVENTS[1]: Offset(31)})
    for group in ("some-deleted", "deleted"):
        side.commit(group, dict.fromkeys(EVENTS, Offset(1)))
    assert delete_offsets(side.client, "some-deleted", EVENTS[:2]) == dict.fromkeys(EVENTS[:2], 0)
    assert delete_groups(side.client, "deleted", version=1) == {"deleted": 0}
    return Told(joined, static, open_producer)


def go_on(side: Side, told: Told) -> None:
    """Have all groups changed, by those who were there before."""
    side.commit("simple", {EVENTS[0]: Offset(100, metadata="more words")})
    who: dict[str, Any] = {"generation_id_or_member_epoch": told.joined.generation_id, "member_id": told.joined.member_id}
    side.commit("joined", {EVENTS[1]: Offset(101)}, **who)
    if told.static is not None:
        back = side.someone("static", "an instance")
        back.join()
        assert back.joined().generation_id == told.static.generation_id
        back.sync()
        assert back.synced().assignment == b"what it is to read"
    side.member("left")
    side.end("open", told.open_producer, is_commit=True)
    producer = side.producer("copier")
    side.in_transaction("copier", producer, "transactions", {EVENTS[0]: Offset(120)})
    side.end("copier", producer, is_commit=True)
    side.settled(("transactions", EVENTS[0], 120), ("transactions", EVENTS[2], 30), ("only-open", EVENTS[1], 31))
    side.commit("deleted", {EVENTS[0]: Offset(1)})
    assert delete_offsets(side.client, "some-deleted", EVENTS) == dict.fromkeys(EVENTS, 0)


def check(side: Side, expected: dict[str, Any]) -> None:
    said = side.answers()
    for asked, answer in expected.items():
        assert said[asked] == answer, asked
    assert said == expected


@pytest.mark.parametrize(
    ("kafka", "versions", "are_killed"),
    first_of((Kafka391, NEWEST, True), (Kafka241, OF_2_4, False), why="groups of old releases: test_zookeeper_releases"),
    ids=["3.9.1-killed", "2.4.1"],
)
def test_a_folder_goes_to_tidelog_and_back(kafka: Any, versions: Versions, are_killed: bool, tmp_path: Path) -> None:
    with kafka(tmp_path) as broker:
        broker.create_topic("events", 3)
        with Side(broker.bootstrap, versions) as side:
            told = tell(side)
            said = side.answers()
            assert said["list"].keys() == {*GROUPS} - {"deleted"} - ({"static"} if told.static is None else set())
        (broker.kill if are_killed else broker.stop)()
        with tidelog.Broker(broker.data) as ours:
            with Side(ours.bootstrap_servers, versions) as side:
                check(side, said)
                go_on(side, told)
                said = side.answers()
            (ours.kill if are_killed else ours.stop)()
            ours.start()
            with Side(ours.bootstrap_servers, versions) as side:
                check(side, said)
        broker.start()
        with Side(broker.bootstrap, versions) as side:
            check(side, said)
        broker.stop()
        check_bytes(broker.data / "__consumer_offsets-0")


def check_bytes(folder: Path) -> None:
    """Each record that Kafka or we wrote is what we write of what it says."""
    seen = 0
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for header in iter_headers(data):
            if header.is_control:
                continue
            for record in iter_records(header, data[header.position : header.end_position], path=path):
                if record.value is not None:
                    found = StateRecord(record.offset, record.timestamp, record.key, record.value)
                    (group,) = read_groups([StateBatch(-1, -1, False, None, [found])], 0).values()
                    offsets = list(group.offsets.all())
                    entry = offset_entry(group.group_id, *offsets[0]) if offsets else group_entry(group)
                    assert entry == (record.key, record.value)
                    seen += 1
    assert seen > 20


def test_a_folder_of_tidelogs_becomes_kafkas(tmp_path: Path) -> None:
    """By `tidelog handover --with-groups`; an open transaction goes on."""
    properties: dict[str, Any] = {"offsets_topic_num_partitions": 3, "transaction_state_log_num_partitions": 2}
    with tidelog.Broker(tmp_path / "ours", group_initial_rebalance_delay_ms=0, **properties) as ours:
        create_topics(ours.bootstrap_servers, {"events": {}}, 3)
        with Side(ours.bootstrap_servers, NEWEST) as side:
            told = tell(side)
            said = side.answers()
    with Kafka391(tmp_path / "kafka") as kafka:
        topics = {"events": 3, "__consumer_offsets": 3, "__transaction_state": 2}
        hand_over(tmp_path / "ours", kafka, "--with-groups")
        kafka.topics |= topics
        with Side(kafka.bootstrap, NEWEST) as side:
            check(side, said)
            go_on(side, told)
