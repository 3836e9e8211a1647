"""Brokers register, live by heartbeats, and lead exactly while they are unfenced."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.broker.controller import registrations
from tidelog.broker.controller.registrations import SESSION_MS, Registrations
from tidelog.clock import ManualClock
from tidelog.metadata.records import NO_LEADER, PartitionRecord, TopicRecord
from tidelog.reader.metadata_log import read_metadata_log
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.steps import run_steps
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog.wire.messages.broker_registration import BrokerRegistrationRequest

BROKERS = (1, 2)


class Machine:
    """A controller's store, timers that run by hand, and brokers."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = 0
        self.due: list[tuple[int, Callable[[], None]]] = []
        self.store = MetadataStore.open(folder, 3000, uuid.uuid4(), ManualClock())
        self.store.begin()
        topic_id = uuid.uuid4()
        self.store.commit(
            [
                TopicRecord("orders", topic_id),
                *(
                    PartitionRecord(number, topic_id, [broker], [broker], [], [], NO_LEADER, directories=[uuid.UUID(int=1000)])
                    for number, broker in enumerate(BROKERS * 2)
                ),
            ]
        )
        self.brokers = Registrations(self.store, self, lambda steps: run_steps(steps, self.store))  # type: ignore[arg-type]
        self.brokers.expected = frozenset(BROKERS)
        self.epochs: dict[int, int] = {}

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> None:
        self.due.append((self.now_ms + int(delay_ms), callback))

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        while ready := [one for one in self.due if one[0] <= self.now_ms]:
            for one in ready:
                self.due.remove(one)
                one[1]()

    def register(self, broker: int, incarnation: int) -> ErrorCode:
        request = BrokerRegistrationRequest(broker, "cluster", uuid.UUID(int=incarnation), log_dirs=[uuid.UUID(int=1000)])
        result = run_steps(self.brokers.registration(request), self.store)
        if not result.error_code:
            self.epochs[broker] = result.broker_epoch
        return ErrorCode(result.error_code)

    def beat(self, broker: int, **more: bool) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(broker, self.epochs.get(broker, -1), self.store.end_offset - 1, **more)
        return run_steps(self.brokers.heartbeat(request), self.store)

    def leaders(self) -> dict[int, int]:
        return {number: one.leader for number, one in self.store.image.topics["orders"].partitions.items()}

    def check(self) -> None:
        """A partition has its broker as the leader exactly while that is unfenced; the log on disk says the same."""
        alive = self.brokers.alive()
        for image in (self.store.image, read_metadata_log(self.store.directory).image):  # type: ignore[union-attr]
            for number, one in image.topics["orders"].partitions.items():
                broker = BROKERS[number % 2]
                assert one.leader == (broker if broker in alive else NO_LEADER)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(registrations, "_now_ms", lambda: made.now_ms)
    return made


def test_from_registration_to_the_end_of_its_session(machine: Machine) -> None:
    assert machine.beat(1).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert machine.register(1, 1) is ErrorCode.NONE
    assert machine.beat(1, want_fence=True).is_fenced
    epochs = [one.leader_epoch for one in machine.store.image.topics["orders"].partitions.values()]
    assert not machine.beat(1).is_fenced
    assert machine.leaders() == {0: 1, 1: -1, 2: 1, 3: -1}
    after = [one.leader_epoch for one in machine.store.image.topics["orders"].partitions.values()]
    assert [new - old for new, old in zip(after, epochs, strict=True)] == [1, 0, 1, 0]
    for _ in range(5):
        machine.pass_ms(SESSION_MS - 1)
        assert not machine.beat(1).is_fenced
    machine.pass_ms(SESSION_MS)
    machine.check()
    assert machine.brokers.alive() == []
    assert not machine.beat(1).is_fenced, "it is heard again"
    shut = machine.beat(1, want_shut_down=True)
    assert shut.should_shut_down and shut.is_fenced
    machine.check()


def test_who_may_register(machine: Machine) -> None:
    assert machine.register(3, 1) is ErrorCode.INVALID_REGISTRATION
    assert machine.register(1, 1) is ErrorCode.NONE
    machine.beat(1)
    before = machine.epochs[1]
    assert machine.register(1, 2) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert machine.register(1, 1) is ErrorCode.NONE, "the same run, whose response was lost"
    assert machine.epochs[1] == before
    run_steps(machine.brokers.fencing(1), machine.store)
    assert machine.register(1, 2) is ErrorCode.NONE
    assert machine.epochs[1] > before
    machine.epochs[1], after = before, machine.epochs[1]
    assert machine.beat(1).error_code == ErrorCode.STALE_BROKER_EPOCH
    machine.epochs[1] = after
    behind = BrokerHeartbeatRequest(1, after, 0)
    response = run_steps(machine.brokers.heartbeat(behind), machine.store)
    assert response.is_fenced and not response.is_caught_up, "it has not read its registration"


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["register", "beat", "fence", "shut", "killed", "wait"]),
            st.sampled_from(BROKERS),
            st.integers(1, SESSION_MS + 1),
        ),
        max_size=25,
    )
)
def test_any_history(steps: list[tuple[str, int, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(tmp_path_factory.mktemp("metadata"))
        patch.setattr(registrations, "_now_ms", lambda: machine.now_ms)
        runs = dict.fromkeys(BROKERS, 0)
        for what, broker, number in steps:
            if what == "register":
                runs[broker] += 1
                machine.register(broker, runs[broker] * 10 + broker)
            elif what == "killed":
                run_steps(machine.brokers.fencing(broker), machine.store)
            elif what == "wait":
                machine.pass_ms(number)
            else:
                machine.beat(broker, want_fence=what == "fence", want_shut_down=what == "shut")
            machine.check()
        machine.pass_ms(2 * SESSION_MS + 1)
        assert machine.brokers.alive() == []
        machine.check()
