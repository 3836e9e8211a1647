"""Where a follower cuts its log: the tables, case by case, and logs of random histories."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.partition_logs import batch, messages, open_log
from tidelog.broker.replicas.following.truncation_rules import (
    UNDEFINED,
    OutOfRange,
    Truncation,
    out_of_range,
    start_of_batch,
    truncation_by_epoch,
)
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs


@dataclass
class ModelLog:
    """A log as a list: each offset's epoch, and who wrote it."""

    records: list[tuple[int, str]] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    high_watermark: int = 0

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        found = self.epochs.end_offset_for(leader_epoch, self.log_end_offset)
        return None if found[0] < 0 else found

    def append(self, epoch: int, writer: str) -> None:
        self.epochs.assign(epoch, self.log_end_offset)
        self.records.append((epoch, writer))

    def truncate_to(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)
        self.high_watermark = min(self.high_watermark, offset)

    @classmethod
    def of(cls, *epochs: int, high_watermark: int = 0) -> ModelLog:
        log = cls(high_watermark=high_watermark)
        for epoch in epochs:
            log.append(epoch, "x")
        return log


@pytest.mark.parametrize(
    ("own", "epoch", "end", "expected"),
    [
        # Kafka's ReplicaFetcherThreadTest and AbstractFetcherThreadTest, in small.
        (ModelLog.of(0, 0, 1, 1, 1, high_watermark=2), UNDEFINED, UNDEFINED, (2, True)),
        (ModelLog.of(0, 0, 1, 1, 1, high_watermark=2), 1, UNDEFINED, (2, True)),
        (ModelLog.of(0, 0, 1, 1, 1), UNDEFINED, 3, (3, True)),
        (ModelLog.of(0, 0, 1, 1, 1), UNDEFINED, 9, (5, True)),
        (ModelLog.of(0, 0, 1, 1, 1), 1, 4, (4, True)),
        (ModelLog.of(0, 0, 1, 1, 1), 1, 9, (5, True)),
        (ModelLog.of(0, 0, 1, 1, 1), 0, 4, (2, True)),
        (ModelLog.of(0, 0, 1, 1, 1), 0, 1, (1, True)),
        (ModelLog.of(0, 0, 3, 3, 3), 2, 4, (2, False)),
        (ModelLog.of(0, 0, 2, 3, 3), 2, 9, (3, True)),
        (ModelLog.of(5, 5, 6), 4, 1, (0, True)),
        (ModelLog(records=[(0, "x")] * 3), 4, 1, (1, True)),
        (ModelLog(records=[(0, "x")] * 3), 4, 7, (3, True)),
    ],
)
def test_by_epoch(own: ModelLog, epoch: int, end: int, expected: tuple[int, bool]) -> None:
    assert truncation_by_epoch(own, epoch, end) == Truncation(*expected)


@pytest.mark.parametrize(
    ("own_end", "leader_start", "leader_end", "expected"),
    [
        (10, 0, 5, OutOfRange(truncate_to=5)),
        (10, 5, 9, OutOfRange(truncate_to=9)),
        (10, 11, 20, OutOfRange(start_over_at=11)),
        (10, 10, 20, OutOfRange()),
        (10, 0, 10, OutOfRange()),
        (10, 0, 20, OutOfRange()),
        (0, 7, 7, OutOfRange(start_over_at=7)),
    ],
)
def test_out_of_range(own_end: int, leader_start: int, leader_end: int, expected: OutOfRange) -> None:
    assert out_of_range(own_end, leader_start, leader_end) == expected


def test_no_batch_is_cut_in_two(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_follower(bytes(batch(0, count=5)) + bytes(batch(5, count=1)) + bytes(batch(10, count=4)))
    assert {offset: start_of_batch(log, offset) for offset in range(16)} == {
        **dict.fromkeys(range(5), 0),
        5: 5,
        # Compaction took what was from 6 to 9: a cut there takes nothing that is before it.
        **{offset: offset for offset in range(6, 11)},
        **dict.fromkeys(range(11, 14), 10),
        14: 14,
        15: 15,
    }
    log.close()


def test_messages_of_old_formats_are_left_as_they_are(tmp_path: Path) -> None:
    log = open_log(tmp_path, message_format_version="0.10.2")
    log.append_as_follower(bytes(messages(0, count=4)))
    assert [start_of_batch(log, offset) for offset in range(5)] == [0, 1, 2, 3, 4]
    log.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("elect"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("write"), st.integers(1, 4)),
        st.tuples(st.just("fetch"), st.integers(0, 2), st.integers(0, 3)),
    ),
    max_size=40,
)


@examples(600)
@given(steps=STEPS, is_clean=st.booleans(), asks_first=st.booleans())
def test_followers_continue_their_leader(steps: list[tuple], is_clean: bool, asks_first: bool) -> None:
    """Three replicas, leaders that come and go: at last all logs are the leader's.

    With `is_clean` only replicas are elected that have all that is committed: then nothing of that is ever cut. `asks_first` is
    OffsetForLeaderEpoch, as before Fetch 12; else answers to fetches tell.
    """
    logs = [ModelLog() for _ in range(3)]
    leader, epoch = 0, 0
    truncating = {1, 2}
    logs[0].epochs.assign(0, 0)
    committed: list[tuple[int, str]] = []
    held: set[int] = set()
    """The logs that have all of that."""

    def fetch(follower: int, most: int) -> None:
        if follower in truncating and asks_first:
            for _ in range(50):
                if continues(logs[follower], logs[leader]):
                    break
            else:
                raise AssertionError("it never ends")
            truncating.discard(follower)
        log, source = logs[follower], logs[leader]
        latest = log.epochs.latest
        if latest is not None and not asks_first:
            found = source.end_offset_for_epoch(latest.epoch)
            assert found is not None, "a leader knows its own epoch, which is the newest"
            if found[0] < latest.epoch or found[1] < log.log_end_offset:
                before = (log.log_end_offset, latest)
                log.truncate_to(truncation_by_epoch(log, *found).offset)
                assert (log.log_end_offset, log.epochs.latest) != before, "each answer brings them closer"
                return
        for one, writer in source.records[log.log_end_offset : log.log_end_offset + most]:
            log.append(one, writer)
        log.high_watermark = min(source.high_watermark, log.log_end_offset)

    for kind, *rest in steps:
        if kind == "elect":
            candidate = rest[0]
            if is_clean and logs[candidate].records[: len(committed)] != committed:
                continue
            leader, epoch = candidate, epoch + 1
            truncating = {0, 1, 2} - {leader}
            logs[leader].epochs.assign(epoch, logs[leader].log_end_offset)
        elif kind == "write":
            for _ in range(rest[0]):
                logs[leader].append(epoch, f"{leader} in {epoch}")
        elif rest[0] != leader:
            fetch(*rest)
        if is_clean:
            holders = {id(log) for log in logs if log.records[: len(committed)] == committed}
            assert holders >= held and len(holders) >= 2
            # What the leader and another one have is committed.
            for end in range(len(committed) + 1, logs[leader].log_end_offset + 1):
                if sum(log.records[:end] == logs[leader].records[:end] for log in logs) < 2:
                    break
                committed = logs[leader].records[:end]
            logs[leader].high_watermark = len(committed)
            held = {id(log) for log in logs if log.records[: len(committed)] == committed}
    for follower in {0, 1, 2} - {leader}:
        for _ in range(100):
            fetch(follower, 4)
        assert logs[follower].records == logs[leader].records
        written = {EpochEntry(one, start) for one, start in starts(logs[leader])}
        # An epoch in which nothing was written yet may be noted at the log end.
        end = logs[follower].log_end_offset
        assert {one for one in logs[follower].epochs.entries if one.start_offset < end} == written


def continues(log: ModelLog, leader: ModelLog) -> bool:
    """One round of OffsetForLeaderEpoch; whether the log continues the leader's then."""
    latest = log.epochs.latest
    if latest is None:
        log.truncate_to(min(log.high_watermark, log.log_end_offset))
        return True
    found = leader.end_offset_for_epoch(latest.epoch)
    assert found is not None
    cut = truncation_by_epoch(log, *found)
    log.truncate_to(cut.offset)
    return cut.is_complete


def starts(log: ModelLog) -> list[tuple[int, int]]:
    """Each epoch that has records, with its first offset."""
    found: dict[int, int] = {}
    for offset, (epoch, _) in enumerate(log.records):
        found.setdefault(epoch, offset)
    return list(found.items())
