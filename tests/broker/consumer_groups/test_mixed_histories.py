"""Property: as in `test_consumer_histories`, with classic members in the group, which changes to their protocol and back.

While the group is a classic one, a model stands for its coordinator: once all members have joined again, each gets its part. What
changes the group from one protocol to the other is the broker's code (`migration`).
"""

from __future__ import annotations

import uuid
from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.broker.consumer_groups.histories import GROUP, Client, Coordinator, Partition, Topics, partitions_of
from tests.broker.consumer_groups.test_consumer_histories import HISTORIES, NAMES, STEPS, History
from tidelog.broker.coordinators.consumer_groups.classic_members import (
    ClassicJoin,
    assignment_bytes,
    ids,
    join_result,
    must_rejoin,
    must_rejoin_first,
    update_of,
)
from tidelog.broker.coordinators.consumer_groups.consumer_group import JOINING, LEAVING, ConsumerGroup, RefusedError
from tidelog.broker.coordinators.consumer_groups.heartbeats import Heartbeat, Result, known, removed
from tidelog.broker.coordinators.groups.group import Group, GroupState, Member
from tidelog.broker.coordinators.groups.membership import add, choose_protocol, remove
from tidelog.broker.coordinators.groups.migration import downgraded, may_downgrade, upgraded
from tidelog.wire.coordinator.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolSubscription,
    read_assignment,
    read_subscription,
)
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.error_codes import ErrorCode

PROTOCOL = "cooperative-sticky"
BIDIRECTIONAL: Any = SimpleNamespace(group_consumer_migration_policy="bidirectional", group_max_size=1000)
MOST_ROUNDS = 10
"""A classic member needs a heartbeat to be told, and then a join: twice if it must revoke."""


class Mixed(Coordinator):
    """A coordinator whose group may be a classic one: then `classic` is not None, and `group` is empty."""

    def __init__(self, topics: Topics) -> None:
        super().__init__(topics)
        self.classic: Group | None = None
        self.changed: Counter[str] = Counter()
        self._rejoined: set[str] | None = None
        """In a rebalance of the classic group, who has joined again."""

    def id_of(self, name: str) -> uuid.UUID | None:
        found = self.topics.facts(name)
        return None if found is None else found.topic_id

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name, one in self.topics.topics.items() if one.topic_id == topic_id), None)

    # --- members of the new protocol

    def beat(self, beat: Heartbeat) -> Result:
        if self.classic is not None:
            if beat.member_epoch != JOINING:
                raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "it is a classic group")
            changes = upgraded(self.classic, self.id_of)
            self.classic, self._rejoined = None, None
            self.group = ConsumerGroup(GROUP)
            self.log.clear()
            self.write(changes)
            self.changed["upgrade"] += 1
        if beat.member_epoch == LEAVING:
            member = known(self.group, beat.member_id, beat.instance_id)
            self.drop(member.member_id)
            return Result([], member)
        return super().beat(beat)

    def end_session(self, member_id: str) -> None:
        if member_id in self.members:
            self.drop(member_id)

    # --- both

    @property
    def members(self) -> dict[str, Any]:
        return self.group.members if self.classic is None else self.classic.members

    def drop(self, member_id: str) -> None:
        """Remove a member. The group becomes a classic one if only classic members are left."""
        if self.classic is not None:
            remove(self.classic, member_id)
            if self.classic.members:
                self.rebalance()
            else:
                self.classic = self._rejoined = None
        elif may_downgrade(self.group, {member_id}, BIDIRECTIONAL):
            self.classic = downgraded(self.group, {member_id}, self.name_of, 0, rebalances=True)
            self.group = ConsumerGroup(GROUP)
            self.log.clear()
            self.late.clear()
            self.rebalance()
            self.changed["downgrade"] += 1
        else:
            self.write(removed(self.group, [self.group.members[member_id]], self.topics))

    # --- classic members

    def join(self, client: ClassicClient) -> None:
        """JoinGroup. Raises RefusedError."""
        metadata = encode_versioned(client.subscribed(self), 1)
        if self.classic is None and self.group.members:
            wanted = ClassicJoin(
                client.member_id, False, None, "c", "/h", 60_000, 30_000, {PROTOCOL: metadata}, read_subscription(metadata)
            )
            result = join_result(self.group, update_of(self.group, wanted, self.id_of), self.topics)
            self.took_over(result)
            client.epoch = result.member.epoch
            return
        if self.classic is None:
            self.group = ConsumerGroup(GROUP)
            self.log.clear()
            self.classic = Group(GROUP, 0, GroupState.STABLE)
        client.has = set()  # The model's assignor is an eager one.
        member = self.classic.members.get(client.member_id)
        if member is None:
            member = Member(
                client.member_id,
                group_instance_id=None,
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=60_000,
                session_timeout_ms=30_000,
                protocol_type="consumer",
                protocols={},
            )
            add(self.classic, member)
        member.protocols = {PROTOCOL: metadata}
        self.classic.protocol_counts = None
        if self._rejoined is None:
            self.rebalance()
        self._rejoined = (self._rejoined or set()) | {client.member_id}
        self._finish()

    def rebalance(self) -> None:
        self._rejoined = set()

    def _finish(self) -> None:
        """End the rebalance if all have joined: each topic's partitions go round among its subscribers."""
        group = self.classic
        assert group is not None and self._rejoined is not None
        if not self._rejoined >= group.members.keys():
            return
        self._rejoined = None
        group.generation_id += 1
        group.protocol_name = choose_protocol(group)
        given: dict[str, dict[uuid.UUID, set[int]]] = {member_id: {} for member_id in group.members}
        for name, one in self.topics.topics.items():
            subscribers = [
                key for key, member in group.members.items() if name in read_subscription(member.protocols[PROTOCOL]).topics
            ]
            for number in range(one.partitions if subscribers else 0):
                given[subscribers[number % len(subscribers)]].setdefault(one.topic_id, set()).add(number)
        for member_id, some in given.items():
            member = group.members[member_id]
            frozen = {topic_id: frozenset(numbers) for topic_id, numbers in some.items()}
            member.assignment = assignment_bytes(frozen, member.protocols[PROTOCOL], self.name_of)

    def is_told_to_rejoin(self, client: ClassicClient, *, syncs: bool) -> bool:
        """Whether a Heartbeat or SyncGroup is answered with REBALANCE_IN_PROGRESS. Raises RefusedError."""
        if self.classic is not None:
            if client.member_id not in self.classic.members:
                raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, client.member_id)
            if self._rejoined is not None:
                return client.member_id not in self._rejoined
            if client.is_joined and client.epoch != self.classic.generation_id:
                raise RefusedError(ErrorCode.ILLEGAL_GENERATION, client.member_id)
            return False
        member = known(self.group, client.member_id, None)
        if member.epoch != client.epoch:
            raise RefusedError(ErrorCode.ILLEGAL_GENERATION, client.member_id)
        epoch = self.group.assignment_epoch if self.late else self.group.epoch
        return must_rejoin_first(member, epoch) if syncs else must_rejoin(self.group, member, epoch)

    def synced(self, client: ClassicClient) -> set[Partition] | None:
        """What SyncGroup returns; None as long as others have not joined again."""
        if self.classic is None:
            return partitions_of(self.group.members[client.member_id].assigned)
        if self._rejoined is not None:
            return None
        client.epoch = self.classic.generation_id
        return partitions_of(
            ids(read_assignment(self.classic.members[client.member_id].assignment).assigned_partitions, self.id_of)
        )


class ClassicClient(Client):
    """A member with a cooperative assignor, which joins again whenever it is told to, and after it has revoked partitions."""

    def __init__(self, rng: Random, number: int, names: tuple[str, ...]) -> None:
        super().__init__(rng, number, names, None, None)
        self.is_joined = False
        """Whether it has what the last SyncGroup said."""

    @property  # type: ignore[override]
    def regex(self) -> str | None:
        """None: a classic client looks up a pattern itself."""
        return None

    @regex.setter
    def regex(self, regex: str | None) -> None: ...

    def subscribed(self, coordinator: Mixed) -> ConsumerProtocolSubscription:
        owned: dict[str, list[int]] = {}
        for topic_id, number in self.has:
            name = coordinator.name_of(topic_id)
            if name is not None:
                owned.setdefault(name, []).append(number)
        topics = [AssignedTopic(name, numbers) for name, numbers in owned.items()]
        return ConsumerProtocolSubscription(sorted(self.names), None, topics)

    def revoke(self) -> None:
        if self.is_joined and self.has != self.wanted:
            self.has = set(self.wanted)
            self.reports = True

    def beat(self, coordinator: Coordinator, *, is_lost: bool = False) -> None:
        """Do the next thing: join, ask for the assignment, or send a heartbeat."""
        mixed = cast("Mixed", coordinator)
        try:
            if self.reports or (self.epoch == JOINING and not self.is_waiting(mixed)):
                self.is_joined = False
                mixed.join(self)
                self.reports = False
                if is_lost:
                    self.rejoin()
            elif mixed.is_told_to_rejoin(self, syncs=not self.is_joined):
                self.reports = True
            elif not self.is_joined:
                self.take(mixed.synced(self))
        except RefusedError as error:
            assert error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION), error
            self.rejoin()

    def is_waiting(self, mixed: Mixed) -> bool:
        """Whether its JoinGroup is not answered yet."""
        return not self.is_joined and mixed.classic is not None and self.member_id in mixed.classic.members

    def take(self, given: set[Partition] | None) -> None:
        if given is not None:
            self.is_joined = True
            self.wanted = given
            if self.has <= given:
                self.has = set(given)

    def rejoin(self) -> None:
        super().rejoin()
        self.is_joined = False


class MixedHistory(History):
    """A history in which half of the members are classic ones."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.coordinator: Mixed = Mixed(self.topics)

    def step(self) -> None:
        if self.rng.randrange(14) == 0:
            self.joined += 1
            self.clients.append(ClassicClient(self.rng, self.joined, tuple(self.rng.sample(NAMES, 2))))
        else:
            super().step()

    def leave(self, client: Client) -> None:
        if isinstance(client, ClassicClient):
            self.coordinator.end_session(client.member_id)
            self.clients.remove(client)
        elif client.member_id in self.coordinator.group.members:
            super().leave(client)

    def reload(self) -> None:
        if self.coordinator.classic is None:
            super().reload()

    def end_silent_sessions(self) -> None:
        super().end_silent_sessions()
        for member_id in set(self.coordinator.members) - {one.member_id for one in self.clients}:
            self.coordinator.end_session(member_id)

    def is_settled(self) -> bool:
        if self.coordinator.classic is None:
            return super().is_settled()
        return all(isinstance(one, ClassicClient) and one.is_joined and not one.reports for one in self.clients) and not any(
            self.coordinator.is_told_to_rejoin(cast("ClassicClient", one), syncs=False) for one in self.clients
        )

    def check(self) -> None:
        super().check()
        if self.coordinator.classic is not None:
            live = [one for one in self.clients if one.member_id in self.coordinator.members and one.epoch != JOINING]
            held = [partition for one in live if cast("ClassicClient", one).is_joined for partition in one.has]
            assert len(held) == len(set(held))


@pytest.mark.parametrize("part", range(4))
def test_mixed_histories(part: int) -> None:
    changed: Counter[str] = Counter()
    for seed in range(part, HISTORIES, 4):
        history = MixedHistory(seed)
        for _ in range(2 * STEPS):
            history.step()
            history.check()
        history.end_silent_sessions()
        assert history.settle() <= MOST_ROUNDS, seed
        changed += history.coordinator.changed
    assert changed["upgrade"] > 5 and changed["downgrade"] > 5
