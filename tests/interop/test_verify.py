"""`index verify` beside real brokers: while they write, delete and compact, after clean stops and a kill, by old rules and new.

Where a killed broker goes on in the middle of a segment its indexes have a gap that looks like damage, and may be called so: what
is said of it is not judged here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import live_topics
from tests.interop.live_topics import LiveTopic, Writer, wait_acknowledged
from tests.kafka import Kafka241, Kafka391
from tests.kafka.clients import NewRow, produce
from tidelog.check.folder_indexes import RebuildOptions, VerifyOptions, rebuild_partitions, verify_partitions
from tidelog.check.partitions import PartitionToVerify, VerifiedPartition
from tidelog.reader.log_dir import LogDir


def partitions(folder: Path) -> Iterator[PartitionToVerify]:
    log_dir = LogDir(folder)
    for topic, numbers in log_dir.topics().items():
        for number in numbers:
            if not topic.startswith("__"):
                yield PartitionToVerify(lambda topic=topic, number=number: log_dir.log(topic, number))


def verified(folder: Path) -> list[VerifiedPartition]:
    """Verify all topics, which must be right."""
    found = list(verify_partitions(partitions(folder), VerifyOptions(threads=2)))
    faults = [finding for one in found for finding in one.findings if finding.is_fault]
    assert [str(fault) for fault in faults] == []
    return found


def notes(found: list[VerifiedPartition]) -> list[str]:
    return [finding.what for one in found for finding in one.findings]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafka391]:
    with Kafka391(tmp_path, live_topics.BROKER) as running:
        yield running


def test_a_broker_that_writes_deletes_compacts_is_killed_and_stopped(broker: Kafka391, tmp_path: Path) -> None:
    topics: list[LiveTopic] = live_topics.create(broker, live_topics.SETTINGS)
    wanted = 0
    told: set[str] = set()
    starts = 0
    is_killed = False
    while not is_killed:
        # Batches far shorter than the interval: longer ones are indexed alike by 512 and by 1,024 bytes.
        with Writer(broker, topics, rounds_s=0.005, batch_num_messages=4):
            for _ in range(4):
                wanted += 700
                wait_acknowledged(topics, wanted)
                found = verified(broker.data)
                told.update(notes(found))
                assert {one.interval_bytes for one in found if one.topic != "compacts"} == {512}
        # A start shows where a batch was due for an entry, which is every other time, until its segment is deleted or compacted.
        is_killed = starts >= 2 and any("the broker was restarted there" in note for note in told)
        if is_killed:
            broker.kill()
            verified(broker.data)
        else:
            broker.stop()
            found = verified(broker.data)
            told.update(notes(found))
            # What is rebuilt elsewhere is what is there, but for entries that a start has moved.
            moved = sum("the broker was restarted there" in note for note in notes(found))
            rebuilt = list(rebuild_partitions(partitions(broker.data), RebuildOptions(tmp_path / f"out-{starts}", 512)))
            theirs = [path for one in rebuilt for path in (broker.data / one.directory.name).glob("*.timeindex")]
            differing = [
                path
                for path in theirs
                if (tmp_path / f"out-{starts}" / path.parent.name / path.name).read_bytes() != path.read_bytes()
            ]
            assert len(differing) <= 2 * moved + len(topics) * max(1, starts)
            assert starts < 12, "no start shows"
            broker.start()
            starts += 1


@pytest.mark.thorough("indexes by old rules: tests/check; folders of living brokers: the test above, test_verify_folder")
def test_kafka_241_of_every_format(tmp_path: Path) -> None:
    """Started again and again, in the middle of segments, with times that go back and forth."""
    chance = random.Random(1)
    with Kafka241(tmp_path) as broker:
        for release in ("0.9.0", "0.10.2", "2.4"):
            broker.create_topic(
                f"format-{release}", segment_bytes=16384, index_interval_bytes=512, message_format_version=release
            )
        for end in (broker.stop, broker.stop, broker.kill):
            for topic in broker.topics:
                for codec in ("none", "lz4"):
                    times = [live_topics.T + chance.randrange(100_000) for _ in range(chance.randrange(200, 500))]
                    rows = [NewRow(b"k", b"v" * chance.randrange(90), time) for time in times]
                    produce(broker.bootstrap, topic, rows, batch_records=chance.choice([1, 5, 30]), compression_type=codec)
            verified(broker.data)
            end()
            verified(broker.data)
            if end == broker.stop:
                broker.start()
