"""Property: assignments have Kafka's numbers of partitions, and keep what they can."""

from __future__ import annotations

import uuid
from collections import Counter
from itertools import chain, product

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.broker.coordinators.consumer_groups.assignors import (
    Assignee,
    Assigning,
    Assignments,
    assign_ranges,
    assign_uniformly,
)
from tidelog.broker.coordinators.consumer_groups.consumer_group import Assignment

TOPICS = [uuid.UUID(int=number) for number in range(1, 5)]
MEMBERS = [f"member-{number}" for number in range(6)]

subscriptions = st.dictionaries(st.sampled_from(MEMBERS), st.frozensets(st.sampled_from(TOPICS)), min_size=1)
same = st.builds(
    dict.fromkeys, st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True), st.frozensets(st.sampled_from(TOPICS))
)
sizes = st.fixed_dictionaries({topic: st.integers(1, 9) for topic in TOPICS})


def assigning(topics: dict[str, frozenset[uuid.UUID]], counts: dict[uuid.UUID, int], before: Assignments) -> Assigning:
    members = {member: Assignee(None, wanted, before.get(member, {})) for member, wanted in topics.items()}
    used = frozenset[uuid.UUID]().union(*topics.values())
    return Assigning(members, {topic: counts[topic] for topic in used})


def check_all_once(what: Assigning, made: Assignments) -> None:
    assert made.keys() == what.members.keys()
    given_away = [(topic, partition) for one in made.values() for topic, partitions in one.items() for partition in partitions]
    assert sorted(given_away) == sorted((topic, one) for topic, count in what.partitions.items() for one in range(count))
    assert all(made[member].keys() <= one.topics for member, one in what.members.items())


def count(assignment: Assignment) -> int:
    return sum(len(partitions) for partitions in assignment.values())


@examples(200)
@given(subscriptions, sizes)
def test_ranges(topics: dict[str, frozenset[uuid.UUID]], counts: dict[uuid.UUID, int]) -> None:
    what = assigning(topics, counts, {})
    made = assign_ranges(what)
    check_all_once(what, made)
    for topic, total in what.partitions.items():
        theirs = [sorted(made[member].get(topic, ())) for member in sorted(topics) if topic in topics[member]]
        assert [*chain.from_iterable(theirs)] == list(range(total))
        assert [len(one) for one in theirs] == [total // len(theirs) + (i < total % len(theirs)) for i in range(len(theirs))]


def test_ranges_are_in_the_order_of_instances() -> None:
    topic = TOPICS[0]
    members = {
        name: Assignee(instance_id, frozenset({topic}))
        for name, instance_id in [("a", None), ("b", "2"), ("c", "1"), ("d", None)]
    }
    made = assign_ranges(Assigning(members, {topic: 5}))
    assert {name: sorted(one[topic]) for name, one in made.items()} == {"c": [0, 1], "b": [2], "a": [3], "d": [4]}


@examples(300)
@given(same, same, sizes, sizes)
def test_uniform_if_all_have_the_same_topics(
    first: dict[str, frozenset[uuid.UUID]],
    then: dict[str, frozenset[uuid.UUID]],
    before_counts: dict[uuid.UUID, int],
    counts: dict[uuid.UUID, int],
) -> None:
    counts = {topic: max(before_counts[topic], counts[topic]) for topic in TOPICS}
    before = assign_uniformly(assigning(first, before_counts, {}))
    what = assigning(then, counts, before)
    made = assign_uniformly(what)
    check_all_once(what, made)
    numbers = sorted(map(count, made.values()))
    assert numbers[-1] - numbers[0] <= 1
    # Nobody loses a partition to get another one.
    for member, one in what.members.items():
        kept = {topic: partitions for topic, partitions in one.had.items() if topic in one.topics}
        lost = sum(len(partitions - made[member].get(topic, frozenset())) for topic, partitions in kept.items())
        assert not lost or count(made[member]) == count(kept) - lost
    assert assign_uniformly(assigning(then, counts, made)) == made


@examples(300)
@given(subscriptions, subscriptions, sizes)
def test_uniform_if_topics_differ(
    first: dict[str, frozenset[uuid.UUID]], then: dict[str, frozenset[uuid.UUID]], counts: dict[uuid.UUID, int]
) -> None:
    before = assign_uniformly(assigning(first, counts, {}))
    what = assigning(then, counts, before)
    made = assign_uniformly(what)
    check_all_once(what, made)
    load = Counter({member: count(one) for member, one in made.items()})
    if len(set(then.values())) > 1:
        for giver, taker in product(then, then):
            could_move = any(topic in then[taker] for topic in made[giver])
            assert not could_move or load[giver] <= load[taker] + 1, "one partition more would make it more even"
    assert assign_uniformly(assigning(then, counts, made)) == made
