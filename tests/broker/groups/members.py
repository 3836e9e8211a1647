"""Members of groups for tests, each with a connection of its own: they send what they are told to, and remember what they became.

with Member(broker.address, "group") as one:
    one.join()            # sends; `joined` waits for the answer and takes the generation over
    one.joined()
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any, Self

from tests.broker.conftest import RunningBroker
from tests.broker.raw import RawClient
from tidelog.broker.coordinators.groups.group import Group, GroupState
from tidelog.clock import ManualClock
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

CONSUMER = "consumer"
NO_TOPICS = bytes(6) + b"\xff\xff\xff\xff"
"""A subscription to nothing: version 0, no topics, no user data. Kafka loses a group whose metadata it cannot read."""
RANGE = {"range": NO_TOPICS}


class Member:
    """A member, or somebody who wants to be one. Versions are the newest unless `version` says less."""

    def __init__(
        self,
        address: tuple[str, int],
        group_id: str = "group",
        *,
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        protocol_type: str = CONSUMER,
        client_id: str | None = "raw",
        version: int = 9,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self.client = RawClient(address, client_id=client_id)
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocols = RANGE if protocols is None else protocols
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocol_type = protocol_type
        self.version = version
        self.settle = settle
        self.member_id = ""
        self.generation_id = -1
        self.protocol_name: str | None = None
        self.leader_id = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.client.close()

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.member_id

    @property
    def is_answered(self) -> bool:
        """Whether something has come in."""
        return bool(select([self.client.socket], [], [], 0)[0])

    # --- JoinGroup

    def join(self, **changes: Any) -> None:
        """Send a JoinGroup; `joined` is its answer."""
        protocols = changes.pop("protocols", self.protocols)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols.items()],
            reason="a test",
        )
        for name, value in changes.items():
            setattr(request, name, value)
        self.client.send(request, self.version)
        self.settle()

    def joined(self) -> JoinGroupResponse:
        """Wait for the answer to `join`, and be what it says."""
        response: JoinGroupResponse = self.client.receive()
        self.member_id = response.member_id
        if not response.error_code:
            self.generation_id = response.generation_id
            self.protocol_name = response.protocol_name
            self.leader_id = response.leader
        return response

    def enter(self) -> None:
        """Send a JoinGroup with an id that is asked for before, as clients since KIP-394 do; `joined` is its answer."""
        if not self.member_id and self.instance_id is None and self.version >= 4:
            self.join()
            self.joined()
        self.join()

    # --- SyncGroup

    def sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> None:
        """Send a SyncGroup; `synced` is its answer."""
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignments=[SyncGroupRequestAssignment(name, what) for name, what in (assignments or {}).items()],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        self.client.send(request, min(self.version, 5))
        self.settle()

    def synced(self) -> SyncGroupResponse:
        response: SyncGroupResponse = self.client.receive()
        return response

    # --- the rest

    def heartbeat(self, **changes: Any) -> int:
        """Send a heartbeat and return its error code."""
        request = HeartbeatRequest(self.group_id, self.generation_id, self.member_id, self.instance_id)
        for name, value in changes.items():
            setattr(request, name, value)
        return int(self.client.ask(request, min(self.version, 4)).error_code)

    def leave(self, *members: MemberIdentity) -> LeaveGroupResponse:
        """Leave, or have others leave."""
        identities = list(members) or [MemberIdentity(self.member_id, self.instance_id, "a test")]
        request = LeaveGroupRequest(self.group_id, self.member_id, identities)
        response: LeaveGroupResponse = self.client.ask(request, min(self.version, 5))
        return response


class Coordinator:
    """A broker with a clock of its own; an empty group does not wait for further members, unless it is reported otherwise.

    What its members send is seen in that order, though each has a connection of its own.
    """

    def __init__(self, folder: Path, **properties: Any) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        settings = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 3} | properties
        self.broker = RunningBroker(folder, self.clock, **settings)
        self.members: list[Member] = []

    def close(self) -> None:
        for member in self.members:
            member.client.close()
        self.broker.stop()

    def restart(self) -> None:
        """End the broker, start it again on its folder, and return once it has its groups again."""
        self.broker.stop()
        self.broker.start()
        log = self.broker.node.groups.log
        while any(self.broker.on_loop(lambda: [log.readiness(index) for index in range(log.partitions)])):
            pass

    def member(self, group_id: str, **options: Any) -> Member:
        member = Member(self.broker.address, group_id, settle=self.settle, **options)
        self.members.append(member)
        return member

    def settle(self) -> None:
        """Return once the broker has seen everything that was sent before."""
        for _ in range(3):
            self.broker.on_loop(lambda: None)

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass, after everything that was sent before."""
        self.settle()
        self.clock.advance(milliseconds)
        self.broker.on_loop(self.broker.running.tick)

    def group(self, group_id: str) -> Group:
        self.settle()
        group = self.broker.node.groups.get(group_id)
        assert group is not None
        return group

    def state(self, group_id: str) -> GroupState:
        return self.group(group_id).state

    def joined(self, group_id: str, members: int = 1, *, is_static: bool = False, **options: Any) -> list[Member]:
        """Return members that have joined a generation of their group together; the first leads."""
        found: list[Member] = []
        for index in range(members):
            member = self.member(group_id, **{"instance_id": f"i{index}" if is_static else None} | options)
            member.enter()
            for other in found:
                other.join()
            found.append(member)
            for one in found:
                assert not one.joined().error_code
        return found

    def stable(self, group_id: str, members: int = 1, **options: Any) -> list[Member]:
        """The same, with assignments: each member's own name, as bytes."""
        found = self.joined(group_id, members, **options)
        assign(found)
        return found


def assign(members: list[Member]) -> None:
    """Have all members of a generation ask for their assignment, the leader last."""
    followers = [one for one in members if not one.is_leader]
    for member in followers:
        member.sync()
    (leader,) = [one for one in members if one.is_leader]
    leader.sync({one.member_id: one.member_id.encode() for one in members})
    for member in [leader, *followers]:
        answer = member.synced()
        assert not answer.error_code
        assert answer.assignment == member.member_id.encode()
