"""Offsets that a transaction commits: unseen until it does, unstable meanwhile; who may commit them; starts in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker
from tests.broker.groups.members import Member
from tests.broker.groups.offset_requests import (
    NOTHING,
    Offset,
    commit,
    commit_in_transaction,
    delete_groups,
    delete_offsets,
    fetch,
    fetch_many,
    loaded,
)
from tests.broker.raw import RawClient
from tests.kafka.java import wait_until
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest

KEY = ("events", 0)
OTHER = ("events", 1)
UNSTABLE = Offset(-1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    properties: dict[str, Any] = {"offsets_topic_num_partitions": 3, "transaction_state_log_num_partitions": 2}
    broker = RunningBroker(tmp_path_factory.mktemp("offsets"), group_initial_rebalance_delay_ms=0, **properties)
    broker.create_topic("events", 2)
    with broker.client() as client:
        for key_type in (0, 1):
            assert not client.ask(FindCoordinatorRequest("any", key_type), 3).error_code
    yield broker
    broker.stop()


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with broker.client() as client:
        yield client


class Copier:
    """A transactional producer that sends offsets to its transactions."""

    def __init__(self, client: RawClient, transactional_id: str) -> None:
        self.client = client
        self.transactional_id = transactional_id
        request = InitProducerIdRequest(transactional_id, 60_000)
        answer = client.ask(request, 4)
        if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:  # which is aborted
            answer = client.ask(request, 4)
        assert not answer.error_code
        self.producer = answer.producer_id, answer.producer_epoch

    def add(self, group: str) -> None:
        assert not self.client.ask(AddOffsetsToTxnRequest(self.transactional_id, *self.producer, group), 3).error_code

    def send(
        self, group: str, offsets: dict[tuple[str, int], Offset], version: int = 4, **more: Any
    ) -> dict[tuple[str, int], int]:
        return commit_in_transaction(self.client, group, offsets, self.transactional_id, self.producer, version, **more)

    def end(self, *, is_commit: bool) -> None:
        assert not self.client.ask(EndTxnRequest(self.transactional_id, *self.producer, committed=is_commit), 3).error_code


def test_nothing_is_seen_before_the_end(client: RawClient) -> None:
    """Of several groups and producers; ends of others change nothing."""
    one, two = Copier(client, "one"), Copier(client, "two")
    commit(client, "first", {KEY: Offset(1), OTHER: Offset(1)})
    for group in ("first", "second"):
        one.add(group)
        for version in range(5):
            epoch = 6 if version >= 2 else -1
            assert one.send(group, {KEY: Offset(10 + version, epoch, None)}, version) == {KEY: 0}
    two.add("first")
    assert two.send("first", {OTHER: Offset(30), ("events", 9): Offset(1), ("nowhere", 0): Offset(1)}) == {
        OTHER: 0,
        ("events", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    both = {"first": [KEY, OTHER], "second": [KEY]}
    assert fetch_many(client, both) == {"first": {KEY: Offset(1), OTHER: Offset(1)}, "second": {KEY: NOTHING}}
    assert fetch_many(client, both, require_stable=True) == {"first": {KEY: UNSTABLE, OTHER: UNSTABLE}, "second": {KEY: UNSTABLE}}
    assert fetch(client, "first", [KEY], 7, require_stable=True) == {KEY: UNSTABLE}
    one.end(is_commit=True)
    assert fetch_many(client, both, require_stable=True) == {
        "first": {KEY: Offset(14, 6), OTHER: UNSTABLE},
        "second": {KEY: Offset(14, 6)},
    }
    two.end(is_commit=False)
    assert fetch(client, "first", require_stable=True) == {KEY: Offset(14, 6), OTHER: Offset(1)}


def test_what_was_written_last_wins(client: RawClient) -> None:
    """Not what was committed last: in memory, and after a start."""
    copier = Copier(client, "late")
    copier.add("raced")
    copier.send("raced", {KEY: Offset(5), OTHER: Offset(5)})
    commit(client, "raced", {KEY: Offset(6)})
    copier.end(is_commit=True)
    assert fetch(client, "raced") == {KEY: Offset(6), OTHER: Offset(5)}


def test_who_may_commit(broker: RunningBroker, client: RawClient) -> None:
    copier = Copier(client, "careful")
    one = {KEY: Offset(1)}
    not_told = {version: copier.send("not told", one, version)[KEY] for version in range(5)}
    assert not_told == dict.fromkeys(range(4), ErrorCode.INVALID_TXN_STATE) | {4: ErrorCode.TRANSACTION_ABORTABLE}
    assert copier.send("", one) == {KEY: ErrorCode.INVALID_GROUP_ID}
    with Member(broker.address, "guarded", instance_id="static") as member:
        member.enter()
        member.joined()
        member.sync({member.member_id: b""})
        member.synced()
        copier.add("guarded")
        who: dict[str, Any] = {"generation_id": member.generation_id, "member_id": member.member_id}
        assert copier.send("guarded", one) == {KEY: 0}
        assert copier.send("guarded", one, 0) == {KEY: 0}
        assert copier.send("guarded", one, **who) == {KEY: 0}
        assert copier.send("guarded", one, **who, group_instance_id="static") == {KEY: 0}
        assert copier.send("guarded", one, **who, group_instance_id="x") == {KEY: ErrorCode.UNKNOWN_MEMBER_ID}
        assert copier.send("guarded", one, **{**who, "member_id": "x"}) == {KEY: ErrorCode.UNKNOWN_MEMBER_ID}
        assert copier.send("guarded", one, **{**who, "generation_id": 99}) == {KEY: ErrorCode.ILLEGAL_GENERATION}
        who["member_id"] = "x"
        assert copier.send("guarded", one, **who, group_instance_id="static") == {KEY: ErrorCode.FENCED_INSTANCE_ID}
        too_long = {KEY: Offset(2), OTHER: Offset(2, metadata="m" * 4097)}
        assert copier.send("guarded", too_long) == {KEY: 0, OTHER: ErrorCode.OFFSET_METADATA_TOO_LARGE}
        member.leave()
    # Somebody else has the transactional id now; what the old one began is aborted.
    newer = Copier(client, "careful")
    assert copier.send("guarded", one) == {KEY: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert fetch(client, "guarded", [KEY], require_stable=True) == {KEY: NOTHING}
    newer.add("guarded")
    assert newer.send("guarded", one) == {KEY: 0}
    assert copier.send("guarded", one) == {KEY: ErrorCode.INVALID_PRODUCER_EPOCH}
    newer.end(is_commit=True)
    assert fetch(client, "guarded") == one


def test_a_producer_that_has_no_id_yet(client: RawClient) -> None:
    """Kafka 3.9.1 answers so, and keeps the connection."""
    for version in range(5):
        assert commit_in_transaction(client, "no id", {KEY: Offset(1)}, "nobody's", (-1, -1), version) == {
            KEY: ErrorCode.INVALID_PRODUCER_ID_MAPPING
        }


def test_offsets_that_are_deleted_while_they_are_pending(client: RawClient) -> None:
    copier = Copier(client, "deleting")
    for group in ("some", "all"):
        commit(client, group, {KEY: Offset(1), OTHER: Offset(1)})
        copier.add(group)
        copier.send(group, {KEY: Offset(2), OTHER: Offset(2)})
    assert delete_offsets(client, "some", [KEY]) == {KEY: 0}
    assert delete_groups(client, "all") == {"all": 0}
    assert fetch_many(client, {"some": [KEY, OTHER], "all": [KEY]}, require_stable=True) == {
        "some": {KEY: NOTHING, OTHER: UNSTABLE},
        "all": {KEY: NOTHING},
    }
    copier.end(is_commit=True)
    assert fetch_many(client, {"some": None, "all": None}) == {"some": {OTHER: Offset(2)}, "all": {}}


def test_a_start_in_between(broker: RunningBroker) -> None:
    """The last test of the module: all that the others did is there, too; and markers that came before a partition was loaded."""
    with broker.client() as client:
        copier = Copier(client, "patient")
        for group in ("waiting", "impatient"):
            copier.add(group)
            copier.send(group, {KEY: Offset(7)})
        other = Copier(client, "another")
        other.add("given up")
        other.send("given up", {KEY: Offset(8)})
        before = fetch_many(client, dict.fromkeys(("first", "second", "raced", "guarded", "some", "all")))
    broker.stop()
    broker.start()
    groups = loaded(broker)
    wait_until(lambda: not broker.on_loop(lambda: broker.node.transactions.log.is_loading), "the transactions to be loaded")
    with broker.client() as client:
        copier.client = client
        assert fetch_many(client, dict.fromkeys(before)) == before
        wanted = [KEY]
        assert fetch_many(client, {"waiting": wanted, "given up": wanted}, require_stable=True) == {
            "waiting": {KEY: UNSTABLE},
            "given up": {KEY: UNSTABLE},
        }
        copier.end(is_commit=True)
        assert fetch_many(client, {"waiting": wanted, "impatient": wanted}, require_stable=True) == {
            "waiting": {KEY: Offset(7)},
            "impatient": {KEY: Offset(7)},
        }

        def end_while_it_loads() -> None:
            partition = groups.log.partition_of("given up")
            group = groups.get("given up")
            assert group is not None
            groups.log._loads.update({partition: object()})
            broker.node.markers.write(groups.log.key(partition), Producer(*other.producer), ControlType.COMMIT, 0)
            assert group.offsets.has_pending
            groups.log._loads.pop(partition)
            groups._install(partition, {})
            assert not group.offsets.has_pending

        broker.on_loop(end_while_it_loads)
        assert fetch(client, "given up") == {KEY: Offset(8)}
