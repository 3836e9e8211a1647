"""KIP-32's migration plan in a cluster of ZooKeeper, up to phase 2: brokers of 0.9.0.1 become 0.10.0.1 and ours.

Played once, with a producer and a consumer of each format running; one broker is killed in each phase. What is seen after each
step is judged here; `make migration` plays it all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.kafka.java import wait_until
from tests.migration import judge
from tests.migration.__main__ import SHORT
from tests.migration.clients import Reader, Writer
from tests.migration.java_clients import JavaReader, JavaWriter
from tests.migration.nodes import NEW, OLD, TIDELOG
from tests.migration.play import BROKERS, CANARY, MEASURED, PARTITIONS, TOPIC, V0, V1, Play, Step, playing
from tests.patience import PATIENCE_S

BEFORE, CODE, TRIED, BACK, PROTOCOL, FORMAT = range(6)
"""The steps, in their order."""

Seen = dict[tuple[int, int], list[int]]


class Course:
    """The play as far as a test needs it: no test takes as long as all of it."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._left = [*SHORT, Play.end]
        self._failed: BaseException | None = None

    def step(self, number: int) -> Step:
        """Return what was seen at the end of a step."""
        self._go_on(lambda: len(self._play.steps) <= number)
        return self._play.steps[number]

    def end(self) -> Play:
        """Play it to its end."""
        self._go_on(lambda: bool(self._left))
        return self._play

    def _go_on(self, is_short_of_it: Callable[[], bool]) -> None:
        if self._failed is not None:
            pytest.fail(f"the play has ended before: {self._failed!r}")
        try:
            while is_short_of_it():
                self._left.pop(0)(self._play)
        except BaseException as error:
            self._failed = error
            raise


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    with playing(tmp_path_factory.mktemp("migration") / "cluster", measure_s=0.5) as play:
        yield Course(play)


def magics(step: Step) -> Seen:
    """The formats on each broker's replica of each partition."""
    return {place: [magic for magic, _ in found] for place, found in step.formats.items()}


def everywhere(found: list[int]) -> Seen:
    return {(broker, partition): found for broker in BROKERS for partition in range(PARTITIONS)}


def told(kinds: dict[int, str], protocols: dict[int, str], formats: dict[int, str]) -> dict[int, str]:
    names = {OLD: "Kafka 0.9.0.1", NEW: "Kafka 0.10.0.1", TIDELOG: TIDELOG}
    return {one: f"{one}: {names[kinds[one]]}, {protocols[one]}/{formats[one]}" for one in BROKERS}


def test_before(course: Course) -> None:
    """Three brokers of 0.9.0.1."""
    assert magics(course.step(BEFORE)) == everywhere([0])


def test_new_code_with_the_old_protocol(course: Course) -> None:
    """Phase 1, steps 1 to 4: nothing changes on the disks, whoever leads."""
    new = {1: NEW, 2: NEW, CANARY: TIDELOG}
    assert course.step(CODE).brokers == told(new, dict.fromkeys(BROKERS, V0), dict.fromkeys(BROKERS, V0))
    assert magics(course.step(CODE)) == everywhere([0])


def test_the_canary(course: Course) -> None:
    """What it leads is v1 in its own log alone: the others fetch with version 1, and get v0."""
    step = course.step(TRIED)
    assert step.brokers[CANARY].endswith(f"{V1}/{V1}")
    expected = everywhere([0])
    expected[CANARY, CANARY - 1] = [0, 1]
    assert magics(step) == expected


def test_the_canarys_way_back(course: Course) -> None:
    """Stopped, its replicas deleted, the old setting, fetched again: v0 from the beginning."""
    step = course.step(BACK)
    assert step.brokers[CANARY].endswith(f"{V0}/{V0}")
    assert magics(step) == everywhere([0])


def test_the_protocol_is_raised(course: Course) -> None:
    """Phase 1, steps 5 and 6: replication by Fetch 2, and v0 on the disks as before."""
    assert all(told.endswith(f"{V1}/{V0}") for told in course.step(PROTOCOL).brokers.values())
    assert magics(course.step(PROTOCOL)) == everywhere([0])


def test_phase_2(course: Course) -> None:
    """v1 on all disks, from the same offsets on."""
    step = course.step(FORMAT)
    assert all(told.endswith(f"{V1}/{V1}") for told in step.brokers.values())
    for partition in range(PARTITIONS):
        found = [step.formats[broker, partition] for broker in BROKERS]
        assert found[0] == found[1] == found[2]
        assert found[0][0] == (0, 0) and found[0][-1][0] == 1


def test_who_is_down_converted(course: Course) -> None:
    """Before phase 2 nobody, after it those who fetch with version 1: of Kafka's brokers and of ours alike."""
    before, after = course.step(PROTOCOL).costs, course.step(FORMAT).costs
    for broker in MEASURED:
        for version in (1, 2):
            assert (before[broker, version].magics, before[broker, version].is_as_stored) == ([0], True)
        assert (after[broker, 1].magics, after[broker, 1].is_as_stored) == ([0], False)
        assert (after[broker, 2].magics, after[broker, 2].is_as_stored) == ([1], True)


def test_nothing_is_lost(course: Course) -> None:
    """Consumers of three formats got every record that was acknowledged, in its place; replicas are the same byte for byte."""
    play = course.end()
    assert play.wrong == []
    for partition in range(PARTITIONS):
        assert len({judge.digest(node, TOPIC, partition) for node in play.nodes.values()}) == 1
    old, new = (reader for reader in play.readers if isinstance(reader, Reader))
    (stamping,) = (writer for writer in play.writers if isinstance(writer, Writer) and writer.name == "producer of 0.10.0")
    assert set(old.times.values()) == {-1}
    assert any(new.times[place] > 0 for place in stamping.acknowledged)


def test_kafkas_own_clients(course: Course) -> None:
    """Producers and consumers of 0.9.0.1, 0.10.0.1 and 3.9.1, and the consumer of ZooKeeper's days, went on all the time."""
    play = course.end()
    assert {writer.name for writer in play.writers if isinstance(writer, JavaWriter) and writer.acknowledged} == {
        f"Kafka's producer of {release}" for release in ("0.9.0.1", "0.10.0.1", "3.9.1")
    }
    readers = {reader.name: reader for reader in play.readers if isinstance(reader, JavaReader)}
    assert set(readers) == {
        *(f"Kafka's consumer of {release}" for release in ("0.9.0.1", "0.10.0.1", "3.9.1")),
        "Kafka's old consumer of 0.9.0.1",
    }
    first = play.readers[0].read
    assert all(reader.read[place] == first[place] for reader in readers.values() for place in first.keys() & reader.read.keys())


def test_the_replicas_are_verified(course: Course) -> None:
    """By `tidelog verify --replicas`, over the folders of all three. What is committed is written a moment later."""
    play = course.end()

    def is_verified() -> bool:
        done = judge.verified(play.nodes.values(), TOPIC)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = [line.split() for line in done.stdout.splitlines() if line.startswith(TOPIC)]
        assert [int(row[1]) for row in rows] == list(range(PARTITIONS))
        # A batch that was sent twice may come after all that consumers have waited for.
        return all(int(row[4]) >= end for row, end in zip(rows, play.readers[0].next, strict=True))

    wait_until(is_verified, "checkpoints of the high watermarks", PATIENCE_S)
