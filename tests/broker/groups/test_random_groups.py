"""Property: whatever members do, and whenever, a group's answers fit together, nothing waits forever, and an idle group empties.

Clients join, sync, beat, leave, lose their ids or their connections, static ones come back, time passes, the broker starts again.

| always | |
|---|---|
| a generation | has one protocol and one number, which never comes twice; its leader alone is reported the members, all of them |
| an assignment | is what the leader of that generation has sent for that member |
| a request | is answered once, or its client has given it up |
| a stable group | keeps its members as long as its generation does |
| counts | say what counting anew says |
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.broker.groups.members import NO_TOPICS
from tests.broker.groups.test_offset_model import AtOnce
from tests.examples import examples
from tidelog.broker.coordinators.groups.group import Group, GroupState, Joining, JoinResult, Leaving, Syncing, SyncResult
from tidelog.broker.coordinators.groups.joining import heartbeat, join, leave, sync
from tidelog.broker.node import Node
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.clock import ManualClock
from tidelog.storage.log_manager import LogManager
from tidelog.storage.steps import run_steps
from tidelog.wire.error_codes import ErrorCode

GROUP = "group"
SESSION_MS = 10_000
REBALANCE_MS = 30_000
LONGEST_MS = 5 * 60_000
"""A join of a new member waits no longer."""

PROTOCOLS = [
    {"a": NO_TOPICS},
    {"a": NO_TOPICS, "b": NO_TOPICS},
    {"b": NO_TOPICS, "a": NO_TOPICS},
    {"a": NO_TOPICS[:-4] + bytes(4)},
]


class Soon:
    """`timers.Timers`: what is to come with the next round of the loop comes when the test says so; all else by hand."""

    def __init__(self) -> None:
        self.waiting: dict[int, Callable[[], None]] = {}

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Call:
        call = Call(self)
        if delay_ms <= 0:
            self.waiting[id(call)] = callback
        return call

    def come_round(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for callback in waiting.values():
            callback()


class Call:
    def __init__(self, timers: Soon) -> None:
        self._timers = timers

    def cancel(self) -> None:
        self._timers.waiting.pop(id(self), None)


class Client:
    """A client, and what it knows of its group."""

    def __init__(self, index: int, instance_id: str | None) -> None:
        self.index = index
        self.instance_id = instance_id
        self.is_old = index % 2 == 1
        """Whether it is a client of before KIP-394 and KIP-814."""
        self.member_id = ""
        self.generation_id = -1
        self.members: list[str] | None = None
        """What it was reported as a leader."""
        self.wait: object = None
        """The request that it waits for."""


class Groups(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 3_000]), max_size=st.sampled_from([4, 100]))
    def start(self, delay_ms: int, max_size: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.clock = ManualClock(1_700_000_000_000)
        properties = {
            "group.initial.rebalance.delay.ms": delay_ms,
            "group.max.size": max_size,
            "offsets.topic.num.partitions": 1,
        }
        self.config = BrokerConfig.from_properties(properties)
        self.manager = LogManager(self.folder, clock=self.clock)
        self.manager.startup()
        self.boot()
        assert run_steps(self.node.groups.log.making(), self.node.manager.metadata) is ErrorCode.NONE
        self.clients = [Client(index, f"i{index}" if index in (2, 3) else None) for index in range(6)]
        self.protocols: dict[int, str | None] = {}
        self.assigned: dict[tuple[int, str], bytes] = {}
        self.stable: tuple[int, set[str]] | None = None

    def boot(self) -> None:
        self.timers = Soon()
        self.node = Node(self.manager, self.config, self.clock, self.timers, AtOnce())  # type: ignore[arg-type]
        self.node.groups.start()
        self.last_generation = 0

    @property
    def group(self) -> Group | None:
        return self.node.groups.get(GROUP)

    def name_of(self, member_id: str) -> str:
        """A static member's assignment is its own, whatever its id."""
        group = self.group
        member = None if group is None else group.members.get(member_id)
        return member_id if member is None or member.group_instance_id is None else member.group_instance_id

    # --- what clients do

    @rule(index=st.integers(0, 5))
    def forgets(self, index: int) -> None:
        """A client is killed, and started again."""
        client = self.clients[index]
        client.member_id, client.generation_id, client.members, client.wait = "", -1, None, None

    @rule(indexes=st.sets(st.integers(0, 5), min_size=1), assigns=st.booleans())
    def rebalances(self, indexes: set[int], assigns: bool) -> None:
        """Several clients do as they should."""
        for _ in range(2):  # The first time some are reported their ids.
            for index in sorted(indexes):
                if self.clients[index].wait is None:
                    self.joins(index, PROTOCOLS[0])
        self.timers.come_round()
        self.passes(3_000)
        if assigns:
            for index in sorted(indexes, key=lambda one: self.clients[one].members is not None):
                if self.clients[index].wait is None:
                    self.syncs(index, leaves_out=False)

    @rule(index=st.integers(0, 5), protocols=st.sampled_from(PROTOCOLS))
    def joins(self, index: int, protocols: dict[str, bytes]) -> None:
        client = self.clients[index]
        wait = client.wait = object()

        def answer(result: JoinResult) -> None:
            # Who has sent another request meanwhile has given this one up: it may be answered, or not.
            if client.wait is wait:
                client.wait = None
                self.joined(client, result)

        result = join(
            self.node.groups,
            GROUP,
            Joining(
                client.member_id,
                client.instance_id,
                f"c{index}",
                "/127.0.0.1",
                REBALANCE_MS,
                SESSION_MS,
                "consumer",
                dict(protocols),
                "a test",
                not client.is_old and client.instance_id is None,
                not client.is_old,
                answer,
            ),
        )
        if result is not None:
            answer(result)

    def joined(self, client: Client, result: JoinResult) -> None:
        code = result.error_code
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = result.member_id
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
            client.member_id, client.generation_id = "", -1
        if code:
            assert (result.generation_id, result.protocol_name, result.members) == (-1, None, ())
            assert code in (
                ErrorCode.MEMBER_ID_REQUIRED,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            )
            return
        group = self.group
        assert group is not None
        assert result.member_id in group.members
        assert result.generation_id == group.generation_id
        assert self.protocols.setdefault(result.generation_id, result.protocol_name) == result.protocol_name
        client.member_id, client.generation_id = result.member_id, result.generation_id
        client.members = None
        if result.members:
            assert result.leader_id == result.member_id == group.leader_id
            assert [one.member_id for one in result.members] == list(group.members)
            assert all(result.protocol_name in one.protocols for one in result.members)
            client.members = [one.member_id for one in result.members]
        elif result.leader_id == result.member_id:
            raise AssertionError("a leader that does not know the members")

    @rule(index=st.integers(0, 5), leaves_out=st.booleans())
    def syncs(self, index: int, leaves_out: bool) -> None:
        client = self.clients[index]
        wait = client.wait = object()
        told = client.members or []
        sent = {one: f"{client.generation_id} {one}".encode() for one in told[leaves_out:]}
        group = self.group
        generation_id = client.generation_id
        if group is not None and group.state is GroupState.COMPLETING_REBALANCE and client.member_id == group.leader_id:
            for one in group.members:
                self.assigned[group.generation_id, self.name_of(one)] = sent.get(one, b"")

        def answer(result: SyncResult) -> None:
            if client.wait is wait:
                client.wait = None
                if result.error_code:
                    assert result.assignment == b""
                else:
                    assert result.assignment == self.assigned[generation_id, self.name_of(client.member_id)]

        if group is None:
            client.wait = None
            return
        syncing = Syncing(client.member_id, client.instance_id, generation_id, None, None, sent, answer)
        result = sync(self.node.groups, group, syncing)
        if result is not None:
            answer(result)

    @rule(index=st.integers(0, 5))
    def beats(self, index: int) -> None:
        client, group = self.clients[index], self.group
        if group is None:
            return
        code = heartbeat(self.node.groups, group, client.member_id, client.instance_id, client.generation_id)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            assert client.member_id in group.members
            assert group.generation_id == client.generation_id
            assert (code is ErrorCode.REBALANCE_IN_PROGRESS) == (group.state is GroupState.PREPARING_REBALANCE)

    @rule(index=st.integers(0, 5), by_instance=st.booleans())
    def leaves(self, index: int, by_instance: bool) -> None:
        client, group = self.clients[index], self.group
        if group is None:
            return
        code = leave(self.node.groups, group, Leaving("" if by_instance else client.member_id, client.instance_id, "a test"))
        if code is ErrorCode.NONE:
            client.member_id, client.generation_id, client.wait = "", -1, None

    @rule(milliseconds=st.sampled_from([1, 2_999, 3_000, 5_000, 9_999, 10_000, 30_000]))
    def passes(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.node.delays.tick()

    @rule()
    def comes_round(self) -> None:
        self.timers.come_round()

    @rule()
    def starts_again(self) -> None:
        for client in self.clients:
            client.wait = None
        stable = self.stable
        self.stable = None
        self.boot()
        if stable is not None:
            group = self.group
            assert group is not None
            assert (group.state, group.generation_id, set(group.members)) == (GroupState.STABLE, *stable)
        # A generation that was not stored, as nobody had its assignment yet, comes again.
        known = 0 if self.group is None else self.group.generation_id
        self.protocols = {generation: name for generation, name in self.protocols.items() if generation <= known}

    # --- what is always true

    @invariant()
    def fits(self) -> None:
        group = self.group
        if group is None:
            return
        members = group.members
        assert group.generation_id >= self.last_generation
        self.last_generation = group.generation_id
        assert group.awaiting_join == sum(member.answer_join is not None for member in members.values())
        assert (group.leader_id in members) if members else group.leader_id is None
        assert group.static_members == {one.group_instance_id: key for key, one in members.items() if one.group_instance_id}
        assert all(key == member.member_id for key, member in members.items())
        assert group.pending_syncs <= set(members)
        assert not set(group.pending_members) & set(members)
        if group.protocol_counts is not None:
            names = [name for member in members.values() for name in member.protocols]
            assert group.protocol_counts == {name: names.count(name) for name in names}
        waits = group.rebalance is not None
        assert waits == (group.state is GroupState.PREPARING_REBALANCE)
        if group.state is GroupState.EMPTY:
            assert not members
        if group.state is not GroupState.PREPARING_REBALANCE:
            assert not group.awaiting_join
        if group.state is not GroupState.COMPLETING_REBALANCE:
            assert not any(member.answer_sync for member in members.values())
        before, self.stable = self.stable, None
        if group.state is GroupState.STABLE:
            self.stable = (group.generation_id, set(members))
            if before is not None and before[0] == group.generation_id:
                assert {name for name in before[1] if not name.startswith("i")} == {
                    name for name in members if not name.startswith("i")
                }

    def teardown(self) -> None:
        if not hasattr(self, "node"):
            return
        self.timers.come_round()
        for _ in range(LONGEST_MS // SESSION_MS + 2 * REBALANCE_MS // SESSION_MS + 2):
            self.clock.advance(SESSION_MS)
            self.node.delays.tick()
            self.timers.come_round()
        group = self.group
        if group is not None:
            assert (group.state, group.members, group.pending_members) == (GroupState.EMPTY, {}, {})
        assert [client.index for client in self.clients if client.wait is not None] == []
        self.manager.shutdown()
        shutil.rmtree(self.folder)


def test_random_groups() -> None:
    run_state_machine_as_test(Groups, settings=examples(90, stateful_step_count=40))
