"""Folders that Tidelog's engine wrote, under real Kafka and back, closed cleanly and not: `engine_rounds` says who does what.

Kafka 2.4.1 is there for the formats v0 and v1. What is on purpose another than Kafka's answer is said where the topics are.
"""

from __future__ import annotations

import re

import pytest

from tests.interop.engine_judges import recover
from tests.interop.engine_rounds import Rounds
from tests.interop.gate import first_of
from tests.interop.seen import UNCOMMITTED, differences
from tests.kafka.clients import Row

# What DumpLogSegments says without a fault being there: of offsets that are missing, of timestamps in batches that compaction has
# emptied. It says the same where Kafka's cleaner did it.
NO_FAULT = re.compile(r"Non-consecutive offsets in \S*(compacted|gaps|truncated)-0/|Found timestamp mismatch in :\S*compacted-0/")

# What a broker may say of its logs: what it was asked to refuse, what recovery is there for, what a format rules out.
EXPECTED = re.compile(
    r"Error processing append operation"
    r"|No meta.properties file under dir"
    r"|Found invalid messages in log segment \S*preallocated"
    r"|partition=\S*preallocated-0, .*Corruption found in segment"
    r"|Could not find offset index file corresponding to log file \S*/killed-"
    r"|partition=killed-\S+\] Failed to load producer snapshot"  # it was being written
    r"|Deleting non-empty leader epoch cache due to incompatible message format"
    r"|processExpiredBrokerHeartbeat: controller event queue overloaded"  # a slow machine
    r"|Could not find offset index file corresponding to log file \S*/__cluster_metadata-1/"
)


@pytest.fixture(
    scope="module",
    params=first_of("3.9.1", "2.4.1", why="v0 and v1: test_migration, test_migrate, differential/test_old_formats"),
)
def rounds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    played = Rounds(tmp_path_factory.mktemp("rounds"), request.param)
    played.play()
    return played


def test_each_finds_what_the_other_has_left(rounds: Rounds) -> None:
    """Records, and offsets by time: what was served before the folder changed hands is served after."""
    assert differences(rounds.written.seen, rounds.first.found) == []
    assert differences(rounds.first.left, rounds.second.found) == []
    assert differences(rounds.second.left | rounds.written_by_killed.seen, rounds.third.found) == []
    assert differences(rounds.third.left, rounds.fourth.found) == []
    assert differences(rounds.fourth.left, rounds.fifth.found) == []


def test_each_appends_behind_the_other(rounds: Rounds) -> None:
    for this in (rounds.first, rounds.second, rounds.third, rounds.fourth, rounds.fifth):
        assert len(this.appended) >= len(rounds.topics)
        for topic, values in this.appended.items():
            before, after = this.found[topic].rows[UNCOMMITTED], this.left[topic].rows[UNCOMMITTED]
            assert after[: len(before)] == before
            assert [row.value for row in after[len(before) :]] == values


def test_producers_are_known_to_the_other(rounds: Rounds) -> None:
    """A batch that is sent again is known, the one that follows is taken, one that leaves a gap is refused."""
    assert rounds.producers
    for topic, (again, following, early) in rounds.producers.items():
        end = rounds.written.seen[topic].end
        assert again == (0, rounds.written.sent[topic].base_offset)
        assert following == (0, end)
        assert early.error_code == 45  # OUT_OF_ORDER_SEQUENCE_NUMBER
        assert rounds.repeated[topic] == (True, end)


def test_a_killed_engine_loses_nothing(rounds: Rounds) -> None:
    """What it has acknowledged, Kafka finds."""
    found = {row.offset: row for row in rounds.busy_found}
    records = {offset: number for offset, number in rounds.acknowledged_by_killed.items() if number >= 0}
    assert len(records) > 300
    for offset, number in records.items():
        assert found[offset].value == b"0:%d:" % number + b"x" * (number % 50)
    assert not {offset for offset, number in rounds.acknowledged_by_killed.items() if number < 0} & found.keys()


def test_a_killed_kafka_loses_nothing(rounds: Rounds) -> None:
    """What it has acknowledged, Tidelog finds; and its producer, who goes on when Kafka is back, doubles and misses nothing."""
    for topic, acknowledged, rows in zip(rounds.live, rounds.live_acknowledged, rounds.live_found, strict=True):
        assert acknowledged >= 1000
        assert len(rows) >= acknowledged
        assert rows == [topic.row(n) for n in range(len(rows))]
        assert rounds.fifth.left[topic.name].rows[UNCOMMITTED] == [topic.row(n) for n in range(topic.produced)]


def test_kafka_and_tidelog_recover_alike(rounds: Rounds) -> None:
    """Indexes byte for byte, the same snapshots with the same entries."""
    if rounds.release != "3.9.1":
        pytest.skip("older releases build their indexes by other rules")
    ours = recover(rounds.before_recovery, rounds.topics | rounds.killed_topics)
    assert len(ours) == len(rounds.recovered)
    for topic, files in ours.items():
        theirs = rounds.recovered[topic]
        assert files.keys() == theirs.keys(), topic
        assert not [name for name, content in files.items() if content != theirs[name]], topic


def test_compaction_goes_on(rounds: Rounds) -> None:
    """Kafka compacts what the engine has compacted before, and then the engine again; no key loses its latest value."""
    assert rounds.compacted
    for before, after in rounds.compacted:
        assert len(after) < len(before)
        assert set(after) <= set(before)
        assert _latest(after) == _latest(before)


def _latest(rows: list[Row]) -> dict[bytes | None, bytes]:
    latest = {row.key: row.value for row in rows}
    return {key: value for key, value in latest.items() if value is not None}


def test_the_tools_find_no_fault(rounds: Rounds) -> None:
    assert len(rounds.judgements) == 3
    for name, future in rounds.judgements.items():
        judgement = future.result()
        assert [line for line in judgement.complaints if not NO_FAULT.match(line)] == []
        assert judgement.sound_indexes == judgement.indexes > 100
        if name != "fifth":  # By then Kafka has removed the snapshots that told where a start was.
            assert judgement.faults == []


def test_no_partition_is_given_up(rounds: Rounds) -> None:
    assert not [name for name in rounds.folders if name.endswith(("-stray", "-delete", "-future"))]
    assert len([name for name in rounds.folders if name.endswith("-0")]) >= 2 * len(rounds.topics)
    about_logs = re.compile(
        rf" (WARN|ERROR) (Log|\w*Log\w*|\w*Index|\w*Epoch\w*|Producer\w*|Partition|Replica\w*): |{rounds.broker.data}/"
    )
    lines = [line for line in rounds.printed.splitlines() if about_logs.search(line)]
    assert [line for line in lines if not EXPECTED.search(line) and not line.startswith("org.apache.kafka.common.errors")] == []
