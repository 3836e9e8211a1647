"""A folder is read while a broker appends to it, rolls, deletes and compacts.

Each read gives a right answer or one SegmentChangedError: never fewer rows, never other ones. What is right, for a read
between two moments, is in `live_topics`. The error is right only where a file went, or was replaced, while the read went on.
The first test also counts: reads of each kind must succeed, and the log must really have changed under them. The others hold
the moment still: a plan is made, the broker removes or replaces its segments, then the plan is read.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

import tidelog
from tests.examples import IS_SOAK
from tests.interop import live_topics
from tests.interop.live_topics import LiveTopic, Writer, wait_acknowledged
from tests.interop.rows import rows_of
from tests.kafka import Kafka391
from tests.kafka.clients import Row, consume
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.errors import SegmentChangedError
from tidelog.sources.plan import plan
from tidelog.sources.split_reader import read_split

SECONDS = 20 if IS_SOAK else 5
"""How long each topic is read while it changes, at least."""
LONGEST_S = 2 * PATIENCE_S
ROLLED = 20
"""Segments that it must have had meanwhile."""


@pytest.fixture(scope="module")
def live_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka391]:
    with Kafka391(tmp_path_factory.mktemp("live"), live_topics.BROKER, heap_mb=512) as running:
        yield running


class Judge:
    """Reads of one topic, and what came of them."""

    def __init__(self, broker: Kafka391, topic: LiveTopic) -> None:
        self.broker = broker
        self.topic = topic
        self.folder = broker.partition_folder(topic.name)
        self.outcomes: Counter[str] = Counter()
        self.chance = random.Random(topic.name)
        self.seen: list[tuple[int, set[int]]] = []

    def attempt(self, what: str, read: Callable[[int], None]) -> None:
        """Do one read, telling it how much was acknowledged before it began."""
        before = segment_files(self.folder)
        try:
            read(self.topic.acknowledged)
        except SegmentChangedError as error:
            assert error.path and "\n" not in str(error)
            assert before - segment_files(self.folder), f"none of the files went: {error}"
            self.outcomes[f"{what}: changed"] += 1
        else:
            self.outcomes[f"{what}: right"] += 1

    def any_offset(self, acknowledged: int) -> int:
        """One that is still there, if not all of them are gone meanwhile."""
        return self.chance.randrange(min(self.topic.log_start(self.broker), acknowledged - 1), acknowledged)

    def scan_all(self, acknowledged: int) -> None:
        rows = rows_of(tidelog.scan(self.broker.data, self.topic.name))
        offsets = [row.offset for row in rows]
        assert rows == [self.topic.row(offset) for offset in offsets]
        if self.topic.name == "compacts":
            self._check_compacted(offsets, acknowledged)
            return
        assert offsets == list(range(offsets[0], offsets[-1] + 1))
        assert offsets[-1] >= acknowledged - 1
        assert offsets[0] <= self.topic.log_start(self.broker)

    def scan_range(self, acknowledged: int) -> None:
        start = live_topics.T + self.any_offset(acknowledged) * 10
        end = start + self.chance.choice((500, 5_000, 50_000))
        rows = rows_of(tidelog.scan(self.broker.data, self.topic.name, start=start, end=end))
        offsets = [row.offset for row in rows]
        assert rows == [self.topic.row(offset) for offset in offsets]
        assert offsets == sorted(set(offsets))
        assert all(start <= row.timestamp < end for row in rows)
        if self.topic.name == "compacts":
            wanted = {n for n in range(acknowledged) if n % 10 == 0 and start <= self.topic.timestamp(n) < end}
        else:
            log_start = self.topic.log_start(self.broker)
            wanted = {n for n in range(log_start, acknowledged) if start <= self.topic.timestamp(n) < end}
        assert wanted <= set(offsets)

    def cat(self, acknowledged: int) -> None:
        """The command: exit code 0 and the right rows, or 1 and one line."""
        command = [sys.executable, "-m", "tidelog", "cat", str(self.broker.data), self.topic.name, "--format", "jsonl"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        if done.returncode != 0:
            assert done.returncode == 1
            said = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
            assert len(said) == 1, done.stderr
            assert said[0].startswith("tidelog: "), done.stderr
            raise SegmentChangedError(said[0], path=self.broker.data)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        offsets = [row["offset"] for row in rows]
        assert [row["value"].encode() for row in rows] == [self.topic.row(offset).value for offset in offsets]
        assert offsets == sorted(set(offsets))
        if self.topic.name == "compacts":
            assert {n for n in range(acknowledged) if n % 10 == 0} <= set(offsets)
        else:
            assert set(range(self.topic.log_start(self.broker), acknowledged)) <= set(offsets)

    def find(self, acknowledged: int) -> None:
        target = self.topic.timestamp(self.any_offset(acknowledged))
        with tidelog.LogDir(self.broker.data).log(self.topic.name, 0) as log:
            found = tidelog.find_offset(log, target)
        assert found is not None
        assert found.timestamp == self.topic.timestamp(found.offset) >= target
        if self.topic.name == "compacts":
            survivors = (n for n in range(found.offset) if n % 10 == 0)
            assert all(self.topic.timestamp(n) < target for n in survivors)
        else:
            # Anything between the log start and the answer that reaches the target should have been the answer.
            assert self.topic.first_reaching(target, self.topic.log_start(self.broker), found.offset) is None

    def find_largest(self, acknowledged: int) -> None:
        with tidelog.LogDir(self.broker.data).log(self.topic.name, 0) as log:
            found = tidelog.find_offset(log, -3)
        assert found is not None
        assert found.timestamp == self.topic.timestamp(found.offset)
        assert found.timestamp >= max(self.topic.timestamp(n) for n in range(acknowledged - 40, acknowledged) if n % 10 == 0)

    def _check_compacted(self, offsets: list[int], acknowledged: int) -> None:
        assert offsets == sorted(set(offsets))
        there = set(offsets)
        latest: dict[bytes, int] = {self.topic.key(n): n for n in range(acknowledged)}
        last: dict[bytes, int] = {self.topic.key(n): n for n in offsets}
        assert all(last.get(key, -1) >= n for key, n in latest.items())
        # Compaction only removes: what this read holds, every earlier one must have held as far as it was written then.
        for before, had in self.seen:
            assert {n for n in there if n < before} <= had
        self.seen.append((acknowledged, there))


@pytest.mark.parametrize("name", list(live_topics.SETTINGS))
def test_each_read_is_right_or_says_that_the_log_changed(live_broker: Kafka391, name: str) -> None:
    (topic,) = live_topics.create(live_broker, {name: live_topics.SETTINGS[name]})
    judge = Judge(live_broker, topic)
    folder = live_broker.partition_folder(name)
    segments: set[str] = set()
    with Writer(live_broker, [topic]):
        wait_acknowledged([topic], 500)
        begin = time.monotonic()
        turns = 0

        def has_seen_enough() -> bool:
            counts = [judge.outcomes[f"{what}: right"] for what in ("scan", "range", "find", "largest")]
            is_removed = name == "grows" or bool(segments - segment_names(folder))
            return min(counts) >= 10 and len(segments) >= ROLLED and is_removed

        # How much happens in a time is the machine's affair.
        while time.monotonic() < begin + SECONDS or not has_seen_enough():
            if time.monotonic() > begin + LONGEST_S:
                raise TimeoutError(f"in {LONGEST_S} s no more than {len(segments)} segments, and {dict(judge.outcomes)}")
            if turns % 10 == 0:
                judge.attempt("cat", judge.cat)
            turns += 1
            judge.attempt("scan", judge.scan_all)
            for _ in range(5):
                judge.attempt("range", judge.scan_range)
                judge.attempt("find", judge.find)
                judge.attempt("largest", judge.find_largest)
            segments |= segment_names(folder)
    print(f"\n{name}: {topic.acknowledged} records, {len(segments)} segments seen, {dict(sorted(judge.outcomes.items()))}")

    # At rest, the folder says what the broker says.
    ours, theirs = read_at_rest(live_broker, name)
    assert ours == theirs


def segment_names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.log")}


def segment_files(folder: Path) -> set[tuple[str, int]]:
    """Return the names and inodes of its logs and indexes: those of files that grow stay the same."""
    return {(entry.name, entry.inode()) for entry in os.scandir(folder) if re.match(r"\d{20}\.(log|index|timeindex)", entry.name)}


def files(folder: Path) -> list[tuple[str, int, int]]:
    """What lies there of its segments. Any of it may be renamed or go while it is looked at."""
    found = []
    for path in folder.glob("*.log*"):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            found.append((path.name, status.st_ino, status.st_size))
    return sorted(found)


def read_at_rest(broker: Kafka391, name: str) -> tuple[list[Row], list[Row]]:
    """What the folder says and what the broker says, at a time when neither retention nor the cleaner has changed anything."""
    folder = broker.partition_folder(name)
    found: list[tuple[list[Row], list[Row]]] = []

    def is_still() -> bool:
        before = files(folder)
        time.sleep(0.7)  # a few turns of the cleaner
        if files(folder) != before:
            return False
        try:
            found.append((rows_of(tidelog.scan(broker.data, name)), consume(broker.bootstrap, name)))
        except SegmentChangedError:
            return False
        return files(folder) == before

    wait_until(is_still, f"{name} to come to rest")
    return found[-1]


def filled(broker: Kafka391, name: str, **config: str) -> LiveTopic:
    """A topic of a few segments to which nobody writes any more."""
    (topic,) = live_topics.create(broker, {name: {key.replace("_", "."): value for key, value in config.items()}})
    with Writer(broker, [topic], rounds_s=0.001):
        wait_acknowledged([topic], 1500)
    return topic


def delete_up_to(broker: Kafka391, topic: LiveTopic, offset: int) -> None:
    place = TopicPartition(topic.name, 0, offset)
    broker.admin.delete_records([place])[place].result(PATIENCE_S)


def test_segments_deleted_after_the_plan_are_read_as_long_as_they_lie_there(live_broker: Kafka391) -> None:
    topic = filled(live_broker, "deleted-later", file_delete_delay_ms="600000")
    folder = live_broker.partition_folder(topic.name)
    reader = tidelog.scan(live_broker.data, topic.name)
    planned = plan(live_broker.data, topic.name)
    with tidelog.LogDir(live_broker.data).log(topic.name, 0) as log:
        delete_up_to(live_broker, topic, topic.acknowledged - 10)
        wait_until(
            lambda: any(folder.glob("*.log.deleted")) and not (folder / f"{0:020}.log").exists(), "the first segment to go"
        )
        wanted = [topic.row(n) for n in range(topic.acknowledged)]
        assert rows_of(reader) == wanted
        assert sum(batch.num_rows for split in planned.splits for batch in read_split(split)) == len(wanted)
        target = topic.timestamp(100)
        found = tidelog.find_offset(log, target)
    assert found is not None
    assert found.offset == topic.first_reaching(target, 0, topic.acknowledged)


def test_segments_gone_after_the_plan_are_kept_open_or_one_clear_error(live_broker: Kafka391) -> None:
    topic = filled(live_broker, "deleted-now", file_delete_delay_ms="0")
    folder = live_broker.partition_folder(topic.name)
    before_all = [topic.row(n) for n in range(topic.acknowledged)]
    reader = tidelog.scan(live_broker.data, topic.name)
    planned = plan(live_broker.data, topic.name)
    with tidelog.LogDir(live_broker.data).log(topic.name, 0) as log:
        delete_up_to(live_broker, topic, topic.acknowledged - 10)
        wait_until(lambda: not any(folder.glob(f"{0:020}.log*")), "the first segment to go")
        # A plan that is read later, by a Spark worker for one, cannot have the files open; a scan has.
        with pytest.raises(SegmentChangedError, match=f"{0:020}"):
            list(read_split(planned.splits[0]))
        assert rows_of(reader) == before_all
        with pytest.raises(SegmentChangedError, match=f"{0:020}"):
            tidelog.find_offset(log, topic.timestamp(100))
    rows = rows_of(tidelog.scan(live_broker.data, topic.name))
    assert rows[-1] == topic.row(topic.acknowledged - 1)
    assert rows[0].offset <= topic.log_start(live_broker)


def test_segments_compacted_after_the_plan_are_kept_open_or_one_clear_error(live_broker: Kafka391) -> None:
    topic = filled(live_broker, "compacted-after", file_delete_delay_ms="0")
    folder = live_broker.partition_folder(topic.name)
    first = folder / f"{0:020}.log"
    before = first.stat().st_ino
    before_all = [topic.row(n) for n in range(topic.acknowledged)]
    reader = tidelog.scan(live_broker.data, topic.name)
    planned = plan(live_broker.data, topic.name)
    with tidelog.LogDir(live_broker.data).log(topic.name, 0) as log:
        compact = live_topics.SETTINGS["compacts"]
        live_broker.alter_topic(topic.name, compact)
        wait_until(
            lambda: any(file[0] == first.name and file[1] != before for file in files(folder)), "the first segment to be replaced"
        )
        # A plan that is read later, by a Spark worker for one, cannot have the files open; a scan has.
        with pytest.raises(SegmentChangedError, match=f"{0:020}"):
            list(read_split(planned.splits[0]))
        assert rows_of(reader) == before_all
        with pytest.raises(SegmentChangedError, match=f"{0:020}"):
            tidelog.find_offset(log, topic.timestamp(100))
    ours, theirs = read_at_rest(live_broker, topic.name)
    assert ours == theirs
