"""The server-side assignors of consumer groups, with Kafka's names.

| assignor | each member gets | kept from the previous assignment |
|---|---|---|
| range | a range of each topic's partitions, by instance id, then member id; the first members may get one more | nothing |
| uniform | the same number of partitions, or one more | as much as these numbers allow |

If members are subscribed to different topics, no assignment is more even than that of `uniform`. As in Kafka 3.9 and 4.2,
neither assignor uses racks. Each member gets as many partitions as from Kafka's assignor. Which partitions move may differ,
because Kafka's choice depends on the order of Java's hash maps. No more partitions move than needed.
"""

from __future__ import annotations

import heapq
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from tidelog.broker.coordinators.consumer_groups.consumer_group import NOTHING, Assignment

Partition: TypeAlias = "tuple[uuid.UUID, int]"


class Assignee(NamedTuple):
    """The facts about a member that an assignor uses."""

    instance_id: str | None
    topics: frozenset[uuid.UUID]
    had: Assignment = NOTHING
    """The member's part of the previous target assignment."""


class Assigning(NamedTuple):
    """The input of an assignor: the members by id, and the number of partitions of each topic."""

    members: Mapping[str, Assignee]
    partitions: Mapping[uuid.UUID, int]


Assignments: TypeAlias = "dict[str, Assignment]"
"""Assignments by member id."""


def assign_ranges(assigning: Assigning) -> Assignments:
    members = assigning.members
    order = sorted(members, key=lambda one: (members[one].instance_id is None, members[one].instance_id or one))
    subscribers: dict[uuid.UUID, list[str]] = defaultdict(list)
    for member_id in order:
        for topic_id in members[member_id].topics:
            subscribers[topic_id].append(member_id)
    assigned: dict[str, dict[uuid.UUID, frozenset[int]]] = {member_id: {} for member_id in order}
    for topic_id, theirs in subscribers.items():
        each, more = divmod(assigning.partitions[topic_id], len(theirs))
        start = 0
        for number, member_id in enumerate(theirs):
            end = start + each + (number < more)
            if start < end:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def assign_uniformly(assigning: Assigning) -> Assignments:
    members = assigning.members
    held: dict[str, list[Partition]] = {}
    free = {(topic_id, number) for topic_id, count in assigning.partitions.items() for number in range(count)}
    for member_id, one in members.items():
        kept = [(topic_id, number) for topic_id, numbers in one.had.items() if topic_id in one.topics for number in numbers]
        held[member_id] = sorted(partition for partition in kept if partition in free)
        free.difference_update(held[member_id])
    if len({one.topics for one in members.values()}) <= 1:
        _share_equally(held, sorted(free))
    else:
        _share_by_subscription(assigning, held, free)
    return {member_id: _by_topic(partitions) for member_id, partitions in held.items()}


def _share_equally(held: dict[str, list[Partition]], free: list[Partition]) -> None:
    """Give each member the same number of partitions. If some members must get one more, those that have the most now get it."""
    if not held:
        return
    each, more = divmod(sum(map(len, held.values())) + len(free), len(held))
    order = sorted(held, key=lambda one: (-len(held[one]), one))
    quotas = {member_id: each + (number < more) for number, member_id in enumerate(order)}
    for member_id, quota in quotas.items():
        free += held[member_id][quota:]
        del held[member_id][quota:]
    following = iter(free)
    for member_id, quota in quotas.items():
        held[member_id] += [next(following) for _ in range(quota - len(held[member_id]))]


def _share_by_subscription(assigning: Assigning, held: dict[str, list[Partition]], free: set[Partition]) -> None:
    """Give each free partition to the subscriber with the fewest partitions, beginning with the topics that have the fewest
    subscribers. Then move partitions until the loads are as even as possible.
    """
    subscribers: dict[uuid.UUID, list[str]] = defaultdict(list)
    for member_id, one in sorted(assigning.members.items()):
        for topic_id in one.topics:
            subscribers[topic_id].append(member_id)
    load = {member_id: len(partitions) for member_id, partitions in held.items()}
    of_topic: dict[uuid.UUID, dict[str, list[Partition]]] = {one: defaultdict(list) for one in subscribers}
    for member_id, partitions in held.items():
        for partition in partitions:
            of_topic[partition[0]][member_id].append(partition)
    waiting: dict[uuid.UUID, list[Partition]] = defaultdict(list)
    for partition in sorted(free):
        if partition[0] in subscribers:
            waiting[partition[0]].append(partition)
    order = sorted(subscribers, key=lambda one: (len(subscribers[one]), -assigning.partitions[one], one))
    for topic_id in order:
        least = [(load[one], one) for one in subscribers[topic_id]]
        heapq.heapify(least)
        for partition in waiting[topic_id]:
            count, member_id = least[0]
            heapq.heapreplace(least, (count + 1, member_id))
            load[member_id] = count + 1
            of_topic[topic_id][member_id].append(partition)
    # Each move reduces the sum of the squares of the loads, so the loop ends.
    while any(_even_out(of_topic[topic_id], subscribers[topic_id], load) for topic_id in order):
        pass
    while _move_along(of_topic, subscribers, load):
        pass
    for member_id in held:
        held[member_id] = [partition for topic_id in order for partition in of_topic[topic_id].get(member_id, ())]


def _even_out(owned: dict[str, list[Partition]], subscribers: list[str], load: dict[str, int]) -> bool:
    """Move partitions of one topic from members with many partitions to members with few; return whether any was moved."""
    least = [(load[one], one) for one in subscribers]
    most = [(-load[one], one) for one in subscribers if owned.get(one)]
    heapq.heapify(least)
    heapq.heapify(most)
    has_moved = False
    while most:
        giver, taker = most[0][1], least[0][1]
        if least[0][0] != load[taker]:
            heapq.heapreplace(least, (load[taker], taker))
        elif -most[0][0] != load[giver] or not owned[giver]:
            heapq.heappop(most)
            if owned[giver]:
                heapq.heappush(most, (-load[giver], giver))
        elif load[giver] <= load[taker] + 1:
            break
        else:
            owned[taker].append(owned[giver].pop())
            load[giver] -= 1
            load[taker] += 1
            heapq.heapreplace(least, (load[taker], taker))
            heapq.heapreplace(most, (-load[giver], giver))
            heapq.heappush(most, (-load[taker], taker))
            has_moved = True
    return has_moved


def _move_along(
    of_topic: Mapping[uuid.UUID, dict[str, list[Partition]]], subscribers: Mapping[uuid.UUID, list[str]], load: dict[str, int]
) -> bool:
    """Find a chain of members whose first member has at least two partitions more than the last, and move one partition from each
    member to the next. Return whether there is such a chain. If there is none, no other assignment is more even.
    """
    owned: dict[str, list[uuid.UUID]] = defaultdict(list)
    for topic_id, owners in of_topic.items():
        for member_id, partitions in owners.items():
            if partitions:
                owned[member_id].append(topic_id)
    seen: set[str] = set()
    looked_at: set[uuid.UUID] = set()
    # If no chain was found through a member or topic from a member with more partitions, none exists from one with fewer.
    for giver in sorted(load, key=lambda one: (-load[one], one)):
        if giver in seen:
            continue
        seen.add(giver)
        came_from: dict[str, tuple[str, uuid.UUID]] = {}
        reached = [giver]
        for member_id in reached:
            for topic_id in owned[member_id]:
                if topic_id in looked_at:
                    continue
                looked_at.add(topic_id)
                for taker in subscribers[topic_id]:
                    if taker in seen:
                        continue
                    seen.add(taker)
                    reached.append(taker)
                    came_from[taker] = (member_id, topic_id)
                    if load[taker] <= load[giver] - 2:
                        load[giver] -= 1
                        load[taker] += 1
                        while taker != giver:
                            before, through = came_from[taker]
                            of_topic[through][taker].append(of_topic[through][before].pop())
                            taker = before
                        return True
    return False


def _by_topic(partitions: list[Partition]) -> Assignment:
    topics: dict[uuid.UUID, set[int]] = defaultdict(set)
    for topic_id, number in partitions:
        topics[topic_id].add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in topics.items()}


ASSIGNORS: Final[Mapping[str, Callable[[Assigning], Assignments]]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""The assignors by name."""
