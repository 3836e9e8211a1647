"""The server-side assignors beside those of Kafka 4.2: the same random members, topics and earlier assignments.

`range` must be the same. `uniform` must be as even, and move no more partitions: which ones depends on Java's hash maps in Kafka.
"""

from __future__ import annotations

import subprocess
import uuid
from random import Random

from tests.kafka.jars import classpath
from tests.kafka.java_members import SOURCES
from tidelog.broker.coordinators.consumer_groups.assignors import ASSIGNORS, Assignee, Assigning

CASES = 1000
CLASSES = {"range": "RangeAssignor", "uniform": "UniformAssignor"}

Assigned = dict[str, set[tuple[int, int]]]


class Case:
    """An assignor's input. A part of it was assigned before, to some of the members."""

    def __init__(self, rng: Random) -> None:
        self.assignor = rng.choice(["range", "uniform", "uniform"])
        self.sizes = [rng.randrange(1, 9) for _ in range(rng.randrange(1, 5))]
        topics = range(len(self.sizes))
        common = frozenset(rng.sample(topics, rng.randrange(1, len(self.sizes) + 1)))
        self.is_same = rng.random() < 0.5
        self.topics: dict[str, frozenset[int]] = {}
        self.instances: dict[str, str | None] = {}
        for number in range(rng.randrange(1, 8)):
            name = f"member-{rng.getrandbits(24):06x}-{number}"
            self.topics[name] = common if self.is_same else frozenset(rng.sample(topics, rng.randrange(1, len(self.sizes) + 1)))
            self.instances[name] = f"i{number}" if rng.randrange(4) == 0 else None
        self.had: Assigned = {name: set() for name in self.topics}
        used = set().union(*self.topics.values())
        for topic in used:
            for partition in range(self.sizes[topic]):
                if rng.randrange(3):
                    readers = [name for name, wanted in self.topics.items() if topic in wanted]
                    self.had[rng.choice(readers)].add((topic, partition))

    def line(self) -> str:
        members = []
        for name, wanted in self.topics.items():
            had = " ".join(f"{topic}:{partition}" for topic, partition in self.had[name])
            members.append(f"{name},{self.instances[name] or ''},{'+'.join(map(str, sorted(wanted)))},{had}")
        return ";".join([CLASSES[self.assignor], ",".join(map(str, self.sizes)), *members])

    def ours(self) -> Assigned:
        ids = [uuid.UUID(int=(7 << 64) + number + 1) for number in range(len(self.sizes))]
        members = {}
        for name, wanted in self.topics.items():
            had = {ids[t]: frozenset(p for topic, p in self.had[name] if topic == t) for t in {t for t, _ in self.had[name]}}
            members[name] = Assignee(self.instances[name], frozenset(ids[topic] for topic in wanted), had)
        used = set().union(*self.topics.values())
        made = ASSIGNORS[self.assignor](Assigning(members, {ids[topic]: self.sizes[topic] for topic in used}))
        return {name: {(ids.index(one), p) for one, some in held.items() for p in some} for name, held in made.items()}


def moved(case: Case, assigned: Assigned) -> int:
    return sum(len(had - assigned[name]) for name, had in case.had.items())


def unevenness(assigned: Assigned) -> int:
    return sum(len(held) ** 2 for held in assigned.values())


def test_assignors() -> None:
    cases = [Case(Random(seed)) for seed in range(CASES)]
    command = ["java", "-Xmx256m", "-cp", classpath("4.2.0"), str(SOURCES / "AssignorJudge.java")]
    given = "".join(f"{case.line()}\n" for case in cases)
    told = subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(told) == len(cases)
    for seed, (case, line) in enumerate(zip(cases, told, strict=True)):
        theirs: Assigned = {}
        for member in line.split(";"):
            name, _, held = member.partition("=")
            theirs[name] = {(int(t), int(p)) for t, p in (one.split(":") for one in held.split())}
        ours = case.ours()
        assert set().union(*ours.values()) == set().union(*theirs.values()), seed
        if case.assignor == "range":
            assert ours == theirs, seed
        elif case.is_same:
            assert sorted(map(len, ours.values())) == sorted(map(len, theirs.values())), seed
            assert moved(case, ours) <= moved(case, theirs), seed
        else:
            assert unevenness(ours) <= unevenness(theirs), seed
