"""KIP-32's migration plan in a cluster of ZooKeeper, up to phase 2: brokers of 0.9.0.1 become 0.10.0.1 and ours.

Played once, with a producer and a consumer of each format running; one broker is killed in each phase. What is seen after each
step is judged here; `make migration` plays it all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.java import wait_until
from tests.migration import judge
from tests.migration.__main__ import SHORT
from tests.migration.nodes import NEW, OLD, TIDELOG
from tests.migration.play import BROKERS, CANARY, MEASURED, PARTITIONS, TOPIC, V0, V1, Play, Step, playing
from tests.patience import PATIENCE_S

BEFORE, CODE, TRIED, BACK, PROTOCOL, FORMAT = range(6)
"""The steps, in their order."""

Seen = dict[tuple[int, int], list[int]]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    with playing(tmp_path_factory.mktemp("migration") / "cluster", measure_s=0.5) as played:
        for step in SHORT:
            step(played)
        played.end()
        yield played


def magics(step: Step) -> Seen:
    """The formats on each broker's replica of each partition."""
    return {place: [magic for magic, _ in found] for place, found in step.formats.items()}


def everywhere(found: list[int]) -> Seen:
    return {(broker, partition): found for broker in BROKERS for partition in range(PARTITIONS)}


def told(kinds: dict[int, str], protocols: dict[int, str], formats: dict[int, str]) -> dict[int, str]:
    names = {OLD: "Kafka 0.9.0.1", NEW: "Kafka 0.10.0.1", TIDELOG: TIDELOG}
    return {one: f"{one}: {names[kinds[one]]}, {protocols[one]}/{formats[one]}" for one in BROKERS}


def test_new_code_with_the_old_protocol(play: Play) -> None:
    """Phase 1, steps 1 to 4: nothing changes on the disks, whoever leads."""
    new = {1: NEW, 2: NEW, CANARY: TIDELOG}
    assert play.steps[CODE].brokers == told(new, dict.fromkeys(BROKERS, V0), dict.fromkeys(BROKERS, V0))
    assert magics(play.steps[BEFORE]) == magics(play.steps[CODE]) == everywhere([0])


def test_the_canary(play: Play) -> None:
    """What it leads is v1 in its own log alone: the others fetch with version 1, and get v0."""
    step = play.steps[TRIED]
    assert step.brokers[CANARY].endswith(f"{V1}/{V1}")
    expected = everywhere([0])
    expected[CANARY, CANARY - 1] = [0, 1]
    assert magics(step) == expected


def test_the_canarys_way_back(play: Play) -> None:
    """Stopped, its replicas deleted, the old setting, fetched again: v0 from the beginning."""
    step = play.steps[BACK]
    assert step.brokers[CANARY].endswith(f"{V0}/{V0}")
    assert magics(step) == everywhere([0])


def test_the_protocol_is_raised(play: Play) -> None:
    """Phase 1, steps 5 and 6: replication by Fetch 2, and v0 on the disks as before."""
    assert all(told.endswith(f"{V1}/{V0}") for told in play.steps[PROTOCOL].brokers.values())
    assert magics(play.steps[PROTOCOL]) == everywhere([0])


def test_phase_2(play: Play) -> None:
    """v1 on all disks, from the same offsets on."""
    step = play.steps[FORMAT]
    assert all(told.endswith(f"{V1}/{V1}") for told in step.brokers.values())
    for partition in range(PARTITIONS):
        found = [step.formats[broker, partition] for broker in BROKERS]
        assert found[0] == found[1] == found[2]
        assert found[0][0] == (0, 0) and found[0][-1][0] == 1


def test_who_is_down_converted(play: Play) -> None:
    """Before phase 2 nobody, after it those who fetch with version 1: of Kafka's brokers and of ours alike."""
    before, after = play.steps[PROTOCOL].costs, play.steps[FORMAT].costs
    for broker in MEASURED:
        for version in (1, 2):
            assert (before[broker, version].magics, before[broker, version].is_as_stored) == ([0], True)
        assert (after[broker, 1].magics, after[broker, 1].is_as_stored) == ([0], False)
        assert (after[broker, 2].magics, after[broker, 2].is_as_stored) == ([1], True)


def test_nothing_is_lost(play: Play) -> None:
    """Consumers of three formats got every record that was acknowledged, in its place; replicas are the same byte for byte."""
    assert play.wrong == []
    for partition in range(PARTITIONS):
        assert len({judge.digest(node, TOPIC, partition) for node in play.nodes.values()}) == 1
    old, new = play.readers
    stamped = {place for writer in play.writers[1:] for place in writer.acknowledged}
    assert set(old.times.values()) == {-1}
    assert stamped and any(new.times[place] > 0 for place in stamped)


def test_the_replicas_are_verified(play: Play) -> None:
    """By `tidelog verify --replicas`, over the folders of all three. What is committed is written a moment later."""

    def is_verified() -> bool:
        done = judge.verified(play.nodes.values(), TOPIC)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = [line.split() for line in done.stdout.splitlines() if line.startswith(TOPIC)]
        assert [int(row[1]) for row in rows] == list(range(PARTITIONS))
        return [int(row[4]) for row in rows] == play.readers[0].next

    wait_until(is_verified, "checkpoints of the high watermarks", PATIENCE_S)
