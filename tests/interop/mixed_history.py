"""Random histories of groups with members of both protocols: what a broker answers, step by step.

Without members of the new protocol, the group is a classic one. Then all its members join together, because a JoinGroup is
answered only after the last of them. The group's assignor is `range`: assignments must not depend on ids that a broker makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tests.broker.raw import RawClient
from tests.interop.consumer_history import Told, WireClient, WireGroup
from tidelog.broker.coordinators.consumer_groups.consumer_group import JOINING, LEAVING, LEAVING_FOR_NOW
from tidelog.wire.coordinator.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    read_assignment,
)
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

COOPERATIVE = 1
"""The version of metadata with owned partitions."""
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)

Topics = dict[str, set[int]]


class ClassicClient:
    """A member of the classic protocol. An eager one gives everything up before it joins again."""

    def __init__(self, rng: Random, number: int, names: tuple[str, ...], instance_id: str | None) -> None:
        self.name = f"classic-{number}"
        self.member_id = "" if instance_id else f"classic-{rng.getrandbits(32):08x}-{number}"
        self.instance_id = instance_id
        self.names = names
        self.protocols = rng.choice([("x",), ("x", "y"), ("y", "x"), ("z",)])
        self.version = rng.choice([0, COOPERATIVE, 3])
        self.generation = -1
        self.has: Topics = {}
        self.wanted: Topics = {}
        self.must_join = True
        self.joins = 0

    @property
    def is_member(self) -> bool:
        return self.generation >= 0

    def join_request(self, group: str) -> JoinGroupRequest:
        owned = [AssignedTopic(name, sorted(some)) for name, some in sorted(self.has.items()) if some] if self.version else []
        self.joins += 1  # Otherwise the group would rebalance only if its leader joins, and a broker chooses the leader.
        subscription = ConsumerProtocolSubscription(list(self.names), b"%d" % self.joins, owned)
        metadata = encode_versioned(subscription, self.version)
        return JoinGroupRequest(
            group,
            60_000,
            60_000,
            self.member_id,
            self.instance_id,
            "consumer",
            [JoinGroupRequestProtocol(name, metadata) for name in self.protocols],
        )

    def joined(self, answer: JoinGroupResponse, told: Told) -> None:
        code = ErrorCode(answer.error_code)
        told.append((self.name, "join", code.name, answer.generation_id, answer.protocol_type, answer.protocol_name))
        if code is ErrorCode.NONE:
            self.member_id, self.generation, self.must_join = answer.member_id, answer.generation_id, False
        else:
            self.failed(code)

    def failed(self, code: ErrorCode) -> None:
        self.must_join = True
        if code in LOST:
            self.has, self.wanted, self.generation = {}, {}, -1
            if self.instance_id is not None:
                self.member_id = ""

    def synced(self, code: ErrorCode, assignment: bytes, told: Told) -> None:
        shown = None
        if code is ErrorCode.NONE:
            given = {one.topic: set(one.partitions) for one in read_assignment(assignment).assigned_partitions}
            shown = sorted((topic, sorted(some)) for topic, some in given.items())
            self.wanted = given
            self.has = {topic: self.has.get(topic, set()) | some for topic, some in given.items()} | {
                topic: some for topic, some in self.has.items() if topic not in given
            }
        else:
            self.failed(code)
        told.append((self.name, "sync", code.name, shown))

    def revoke(self) -> None:
        self.has = {topic: set(some) for topic, some in self.wanted.items()}
        self.must_join = True


class MixedGroup(WireGroup):
    """A group of a broker, with what its classic members ask."""

    def shown(self) -> tuple[object, ...]:
        """Return what the broker says of the group. Ids of static members are not comparable."""
        code, *rest = self.described()
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            (one,) = self.client.ask(DescribeGroupsRequest([self.group]), 5).groups
            return one.group_state, one.protocol_type, len(one.members)
        shown = [
            ("" if isinstance(one, tuple) and one[1] else one[0], *one[1:]) if isinstance(one, tuple) else one for one in rest
        ]
        head, members = shown[:4], shown[4:]
        return (*head, *sorted(members, key=repr))

    @property
    def is_classic(self) -> bool:
        return self.described()[0] == ErrorCode.GROUP_ID_NOT_FOUND

    def join(self, client: ClassicClient, told: Told) -> None:
        client.joined(self.client.ask(client.join_request(self.group), 9), told)

    def sync(self, client: ClassicClient, told: Told, assignments: Mapping[str, bytes] | None = None) -> None:
        given = [SyncGroupRequestAssignment(*one) for one in (assignments or {}).items()]
        request = SyncGroupRequest(
            self.group, client.generation, client.member_id, client.instance_id, "consumer", client.protocols[0], given
        )
        answer = self.client.ask(request, 5)
        client.synced(ErrorCode(answer.error_code), answer.assignment, told)

    def heartbeat(self, client: ClassicClient, told: Told) -> None:
        request = HeartbeatRequest(self.group, client.generation, client.member_id, client.instance_id)
        code = ErrorCode(self.client.ask(request, 4).error_code)
        told.append((client.name, "heartbeat", code.name))
        if code is not ErrorCode.NONE:
            client.failed(code)

    def leave(self, client: ClassicClient, told: Told) -> None:
        request = LeaveGroupRequest(self.group, "", [MemberIdentity(client.member_id, client.instance_id, "a test")])
        told.append((client.name, "leave", ErrorCode(self.client.ask(request, 5).members[0].error_code).name))

    def commit(self, client: ClassicClient, told: Told, generation: int, version: int) -> None:
        topic = OffsetCommitRequestTopic(client.names[0], partitions=[OffsetCommitRequestPartition(0, 1)])
        request = OffsetCommitRequest(self.group, generation, client.member_id, client.instance_id, topics=[topic])
        (answer,) = self.client.ask(request, version).topics[0].partitions
        told.append((client.name, "commit", version, ErrorCode(answer.error_code).name))

    def rebalance(self, clients: list[ClassicClient], sizes: Mapping[str, int], told: Told) -> None:
        """Let all members of a classic group join and get their assignments."""
        address = self.client.socket.getpeername()[:2]
        asked: list[tuple[ClassicClient, RawClient]] = []
        for client in clients:
            client.has = {}
            connection = RawClient(address, client_id="raw")
            connection.send(client.join_request(self.group), 9)
            asked.append((client, connection))
        leader = ""
        for client, connection in asked:
            answer = connection.receive()
            leader = answer.leader or leader
            answer.protocol_name = ""  # Which one they vote for depends on the order of Java's maps.
            client.joined(answer, told)
        members = [client for client, _ in asked if not client.must_join]
        assignments: dict[str, Topics] = {client.member_id: {} for client in members}
        for name, partitions in sizes.items():
            readers = [client for client in members if name in client.names]
            for partition in range(partitions if readers else 0):
                assignments[readers[partition % len(readers)].member_id].setdefault(name, set()).add(partition)
        given = {
            member_id: encode_versioned(
                ConsumerProtocolAssignment([AssignedTopic(name, sorted(some)) for name, some in topics.items()]), 0
            )
            for member_id, topics in assignments.items()
        }
        sent = []
        for client, connection in asked:
            if client in members:
                some = [SyncGroupRequestAssignment(*one) for one in given.items()] if client.member_id == leader else []
                connection.send(
                    SyncGroupRequest(self.group, client.generation, client.member_id, client.instance_id, assignments=some), 4
                )
                sent.append((client, connection))
        for client, connection in sent:
            answer = connection.receive()
            client.synced(ErrorCode(answer.error_code), answer.assignment, told)
        for _, connection in asked:
            connection.close()


class MixedHistory:
    """Clients of both protocols that do something at random. Nobody's session ends, and no topic changes."""

    def __init__(self, seed: int, sizes: Mapping[str, int]) -> None:
        self.rng = Random(seed)
        self.sizes = sizes
        self.new: list[WireClient] = []
        self.classic: list[ClassicClient] = []
        self.joined = 0

    def subscription(self) -> tuple[str, ...]:
        """Return some topics."""
        names = sorted(self.sizes)
        return tuple(sorted(self.rng.sample(names, self.rng.randrange(1, len(names) + 1))))

    def run(self, group: MixedGroup, steps: int) -> Told:
        """Take some steps, and return what the broker answered."""
        told: Told = []
        for _ in range(steps):
            self.step(group, told)
            told.append(group.shown())
        return told

    def step(self, group: MixedGroup, told: Told) -> None:
        """Let a client do something."""
        rng = self.rng
        what = rng.randrange(12)
        if what == 0 or not self.new + self.classic:
            self.joined += 1
            instance_id = f"i{rng.randrange(4)}" if rng.randrange(3) == 0 else None
            if not (self.new or self.classic) or rng.randrange(2):
                self.new.append(WireClient(rng, self.joined, self.subscription(), instance_id, "range"))
            else:
                self.classic.append(ClassicClient(rng, self.joined, self.subscription(), instance_id))
            return
        client = rng.choice([*self.new, *self.classic])
        if isinstance(client, WireClient):
            self.step_new(client, group, told, what)
        elif group.is_classic:
            self.step_classic_group(client, group, told, what)
        else:
            self.step_classic(client, group, told, what)

    def step_new(self, client: WireClient, group: MixedGroup, told: Told, what: int) -> None:
        if what == 1 and client.epoch != JOINING:
            epoch = LEAVING_FOR_NOW if client.instance_id is not None and self.rng.randrange(2) else LEAVING
            client.send(group, told, epoch=epoch)
            if epoch == LEAVING:
                self.new.remove(client)
            else:
                client.restart()
        elif what == 2:
            client.names, client.reports = self.subscription(), True
        elif what < 5:
            client.revoke()
        else:
            client.send(group, told)

    def step_classic(self, client: ClassicClient, group: MixedGroup, told: Told, what: int) -> None:
        if what == 1 and client.is_member:
            group.leave(client, told)
            self.classic.remove(client)
        elif what == 2:
            client.names, client.must_join = self.subscription(), True
        elif what == 3 and client.is_member:
            generation = client.generation + self.rng.randrange(2)
            group.commit(client, told, generation, self.rng.choice([8, 9]))
        elif what == 4:
            client.revoke()
        elif client.must_join:
            if group.shown()[0] == "Empty":
                return  # Kafka 4.2 forgets an empty consumer group, but not in its log, if an unknown classic member joins.
            if not client.version:
                client.has = {}
            group.join(client, told)
        elif self.rng.randrange(2):
            group.sync(client, told)
        else:
            group.heartbeat(client, told)

    def step_classic_group(self, client: ClassicClient, group: MixedGroup, told: Told, what: int) -> None:
        members = [one for one in self.classic if one.is_member]
        if client not in members:
            return
        if what == 1:
            group.leave(client, told)
            self.classic.remove(client)
        elif what < 6:
            group.heartbeat(client, told)
        else:
            group.rebalance(members, self.sizes, told)
