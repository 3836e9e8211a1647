"""Property: whatever members do, no two of them have a partition at the same time, and soon all partitions have an owner.

Members join, leave, die, are silent, lose answers, revoke late, change their subscription; topics grow and go; coordinators load
the group from its records.
"""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from tests.broker.consumer_groups.histories import Client, Coordinator, Topics, partitions_of
from tests.examples import IS_SOAK
from tidelog.broker.coordinators.consumer_groups.consumer_group import (
    JOINING,
    LEAVING,
    LEAVING_FOR_NOW,
    ConsumerGroup,
    GroupState,
    RefusedError,
    names_of,
)
from tidelog.wire.error_codes import ErrorCode

NAMES = ("a", "b", "orders.1", "orders.2")
HISTORIES = 2000 if IS_SOAK else 100
STEPS = 60
MOST_HEARTBEATS = 8
"""Two of them to get what others have revoked; more if a member is fenced, or if the group is large."""


class History:
    """A group, its clients and its topics, changed at random."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.topics = Topics(rng, large=rng.choice([10**9, 10**9, 3]))
        for name in NAMES[:3]:
            self.topics.set(name, rng.randrange(1, 8))
        self.coordinator = Coordinator(self.topics)
        self.clients: list[Client] = []
        self.joined = 0

    def subscription(self) -> tuple[tuple[str, ...], str | None]:
        names = tuple(self.rng.sample(NAMES, self.rng.randrange(1, 4)))
        return self.rng.choice(
            [(("a", "b"), None), (("a", "b"), None), (names, None), ((), r"orders\..*"), (("a",), "orders.*|b")]
        )

    def step(self) -> None:
        rng, coordinator = self.rng, self.coordinator
        what = rng.randrange(20)
        if not self.clients or what == 0:
            self.joined += 1
            instance_id = f"instance-{self.joined}" if rng.randrange(3) == 0 else None
            self.clients.append(Client(rng, self.joined, *self.subscription(), instance_id))
            return
        client = rng.choice(self.clients)
        if what == 1:
            self.leave(client)
        elif what == 2:  # Its session ends; it may be dead, or only learn of it later.
            coordinator.end_session(client.member_id)
            if rng.randrange(2):
                self.clients.remove(client)
            else:
                client.rejoin()
        elif what == 3:
            client.names, client.regex = self.subscription()
            client.reports = True
        elif what == 4:
            name = rng.choice(NAMES)
            now = self.topics.topics.get(name)
            more = rng.randrange(1, 4)
            self.topics.set(name, more if now is None else 0 if rng.randrange(5) == 0 else now.partitions + more)
        elif what == 5:
            self.reload()
        elif what == 6:
            coordinator.finish_assignment()
        elif what < 11:
            client.revoke()
        else:
            client.beat(coordinator, is_lost=rng.randrange(8) == 0)

    def leave(self, client: Client) -> None:
        if client.member_id not in self.coordinator.group.members:
            return
        epoch = LEAVING_FOR_NOW if client.instance_id is not None and self.rng.randrange(2) else LEAVING
        self.coordinator.beat(client.request()._replace(member_epoch=epoch))
        if epoch == LEAVING:
            self.clients.remove(client)
        else:
            client.restart()

    def reload(self) -> None:
        """Let another coordinator load the group, which must be the same."""
        loaded = self.coordinator.load()
        assert described(loaded) == described(self.coordinator.group)
        self.coordinator.group = loaded
        self.coordinator.late.clear()

    def check(self) -> None:
        """No two members have a partition. Clients whose member was replaced or removed do not count."""
        members = self.coordinator.group.members
        live = [one for one in self.clients if one.member_id in members and one.epoch != JOINING]
        for one, other in combinations(live, 2):
            assert not one.has & other.has, (one.member_id, other.member_id)
        held = [partitions_of(one.assigned) | partitions_of(one.pending) for one in members.values()]
        assert sum(map(len, held)) == len(set().union(*held)) == len(self.coordinator.group.owners)

    def end_silent_sessions(self) -> None:
        """Remove the members whose clients are gone. Static members that left for now may return."""
        group = self.coordinator.group
        returning = {one.instance_id for one in self.clients if one.epoch == JOINING}
        for member_id in set(group.members) - {one.member_id for one in self.clients}:
            member = group.members[member_id]
            if member.epoch != LEAVING_FOR_NOW or member.instance_id not in returning:
                self.coordinator.end_session(member_id)

    def settle(self) -> int:
        """Let all clients do at once what they should; return how many heartbeats each needs."""
        for rounds in range(20):
            if self.is_settled():
                return rounds
            self.coordinator.finish_assignment()
            for client in self.clients:
                client.revoke()
                client.beat(self.coordinator)
                client.revoke()
                self.check()
        raise AssertionError("the group does not become stable")

    def is_settled(self) -> bool:
        group = self.coordinator.group
        if not self.clients and not group.members:
            return True
        if group.topics_seen != self.topics.topics_seen or any(one.member_id not in group.members for one in self.clients):
            return False
        if any(one.has != partitions_of(group.members[one.member_id].assigned) for one in self.clients):
            return False
        if any((one.names, one.regex) != tuple(group.members[one.member_id].subscription) for one in self.sorted_clients()):
            return False
        return group.state is (GroupState.STABLE if group.members else GroupState.EMPTY)

    def sorted_clients(self) -> list[Client]:
        for one in self.clients:
            one.names = tuple(sorted(one.names))
        return self.clients


def described(group: ConsumerGroup) -> object:
    return (
        group.epoch,
        group.assignment_epoch,
        group.members,
        group.static_members,
        group.subscriptions,
        {member_id: target for member_id, target in group.targets.items() if member_id in group.members},
        group.owners,
        group.topics,
        group.regexes,
    )


@pytest.mark.parametrize("part", range(4))
def test_histories(part: int) -> None:
    for seed in range(part, HISTORIES, 4):
        history = History(seed)
        for _ in range(STEPS):
            history.step()
            history.check()
        history.end_silent_sessions()
        rounds = history.settle()
        assert rounds <= MOST_HEARTBEATS, seed
        history.reload()
        check_everything_is_read(history)


def check_everything_is_read(history: History) -> None:
    group, topics = history.coordinator.group, history.topics
    wanted = set()
    for one in group.subscriptions:
        for name in names_of(one, group.regexes) & topics.topics.keys():
            wanted |= {(topics.topics[name].topic_id, partition) for partition in range(topics.topics[name].partitions)}
    has = [one.has for one in history.clients]
    assert set().union(*has) == wanted and sum(map(len, has)) == len(wanted)
    assert all(one.has == partitions_of(group.members[one.member_id].assigned) for one in history.clients)


def test_the_property_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gives a partition away before it is released is found."""
    monkeypatch.setattr("tidelog.broker.coordinators.consumer_groups.reconciliation._has_any", lambda owned, partitions: False)
    with pytest.raises(AssertionError):
        test_histories(0)


def test_a_full_group_refuses() -> None:
    topics = Topics(Random(1), max_size=1)
    topics.set("a", 1)
    coordinator = Coordinator(topics)
    Client(Random(2), 1, ("a",), None, None).beat(coordinator)
    with pytest.raises(RefusedError) as refused:
        Client(Random(3), 2, ("a",), None, None).beat(coordinator)
    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
