"""Copies between brokers: exactly once, killed or not, and a map that says where each record went. The target is Tidelog's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.sources.logs import TOPIC, LogBuilder
from tests.sources.test_property import NOON
from tidelog.client.client import Client
from tidelog.copying import copier
from tidelog.copying.copier import CopyResult, CopyTask, committed_positions, copy_partition
from tidelog.copying.copy_plan import plan_copy
from tidelog.copying.offset_map import OffsetMap, OffsetMapWriter
from tidelog.errors import InvalidArgumentError, OffsetOutOfRangeError, ProducerFencedError
from tidelog.model import TopicPartition
from tidelog.records.compression import Codec
from tidelog.sources.opening import open_source
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

SOURCE = TopicPartition(TOPIC, 0)


class Dead(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> LogBuilder:
    """Records in all that a copy must tell apart: batches of several kinds, aborted ones, gaps."""
    builder = LogBuilder(tmp_path_factory.mktemp("source"), segment_bytes=2000)
    for i in range(40):
        records = [(NOON + 10 * i + n, b"k%d" % n, b"%d" % (100 * i + n)) for n in range(5)]
        kind = i % 4
        if kind == 0:
            builder.append(records, codec=Codec.LZ4, headers=(("h", b"x"),))
        elif kind == 1:
            builder.append(records, gaps=[1, 3])
        elif kind == 2:
            builder.append(records, producer_id=7)
            builder.end_transaction(7, NOON, commit=i % 8 == 2)
        else:
            builder.append(records, magic=1)
    builder.close()
    return builder


def task(source: LogBuilder, target: tidelog.Broker, name: str, map_dir: Path | None = None, **asked: Any) -> CopyTask:
    (planned,) = plan_copy(open_source(source.data_dir), TOPIC, **asked)
    return CopyTask(
        job_id=f"job-{name}",
        source=SOURCE,
        splits=planned.splits,
        start_offset=planned.start_offset,
        end_offset=planned.end_offset,
        brokers=target.bootstrap_servers,
        target=TopicPartition(name, 0),
        map_dir=None if map_dir is None else str(map_dir),
        chunk_bytes=500,
    )


def wanted(source: LogBuilder) -> list[tuple[Any, ...]]:
    aborted = [range(first, last + 1) for _, first, last in source.aborted]
    rows = [row for row in source.rows if not (row.producer_id >= 0 and any(row.offset in each for each in aborted))]
    return [(row.offset, row.timestamp, row.key, row.value, row.headers) for row in rows]


def got(client: Client, topic: str) -> dict[int, tuple[Any, ...]]:
    rows = client.read(topic, isolation="read_committed")
    return {row.offset: (row.timestamp, row.key, row.value, row.headers) for row in rows}


def check(source: LogBuilder, client: Client, topic: str, map_dir: Path) -> None:
    """The target holds each record once, in order; the map says where."""
    expected, found = wanted(source), got(client, topic)
    assert list(found.values()) == [row[1:] for row in expected]
    offsets = OffsetMap.open(map_dir)
    for row in expected:
        target_offset, is_exact = offsets.target_of(*SOURCE, row[0])
        assert is_exact
        assert found[target_offset] == row[1:]


@pytest.fixture
def client(target: tidelog.Broker) -> Iterator[Client]:
    with tidelog.connect(target.bootstrap_servers) as connected:
        yield connected


def new_topic(client: Client, name: str) -> str:
    client.cluster.topic(name, create=True)
    return name


def test_a_copy_and_its_map(source: LogBuilder, target: tidelog.Broker, client: Client, tmp_path: Path) -> None:
    new_topic(client, "whole")
    done = copy_partition(task(source, target, "whole", tmp_path))
    check(source, client, "whole", tmp_path)
    assert done.is_exact
    assert (done.records, done.next_offset) == (len(wanted(source)), source.next_offset)
    assert done.chunks > 3
    assert committed_positions(client.cluster, "job-whole", {SOURCE: done.target}) == {SOURCE: source.next_offset}

    again = copy_partition(task(source, target, "whole", tmp_path))
    assert (again.records, again.chunks, again.resumed_offset) == (0, 0, source.next_offset)
    check(source, client, "whole", tmp_path)


STEPS = ["append", "flush", "stage", "send_offsets", "commit", "committed", "confirm"]


@pytest.mark.parametrize("step", STEPS)
def test_a_copier_that_ends_anywhere_is_taken_up(
    step: str, source: LogBuilder, target: tidelog.Broker, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_topic(client, f"ends-{step}")
    for calls in (1, 2, 3):
        with monkeypatch.context() as patched:
            _dies(patched, step, calls)
            with pytest.raises(Dead):
                copy_partition(task(source, target, name, tmp_path))
    copy_partition(task(source, target, name, tmp_path))
    check(source, client, name, tmp_path)


def _dies(patched: pytest.MonkeyPatch, step: str, calls: int) -> None:
    """Let the copier end at the nth call of a step, without a further word to the target or its map."""
    owner = OffsetMapWriter if step in ("stage", "confirm") else copier.BatchAppender
    method = "commit" if step == "committed" else step
    plain = getattr(owner, method)
    left = [calls]

    def call(self: Any, *args: Any, **how: Any) -> Any:
        left[0] -= 1
        if left[0]:
            return plain(self, *args, **how)
        if step == "committed":
            plain(self, *args, **how)
        raise Dead

    patched.setattr(owner, method, call)
    for word in ("abort", "close"):
        patched.setattr(copier.BatchAppender, word, lambda self: self._forget())


def test_an_older_copier_is_fenced(
    source: LogBuilder, target: tidelog.Broker, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once, as after a worker that was given up for dead: the younger one wins, and nothing is there twice."""
    name = new_topic(client, "fenced")
    others: list[CopyResult] = []
    plain = copier.BatchAppender.send_offsets

    def send_offsets(self: copier.BatchAppender, group: str, offsets: Any) -> None:
        monkeypatch.undo()
        others.append(copy_partition(task(source, target, name, tmp_path)))
        plain(self, group, offsets)

    monkeypatch.setattr(copier.BatchAppender, "send_offsets", send_offsets)
    with pytest.raises(ProducerFencedError):
        copy_partition(task(source, target, name, tmp_path))
    assert others[0].records == len(wanted(source))
    check(source, client, name, tmp_path)


def test_a_window_copies_its_records_and_the_position_is_its_end(
    source: LogBuilder, target: tidelog.Broker, client: Client, tmp_path: Path
) -> None:
    name = new_topic(client, "window")
    low, high = NOON + 33, NOON + 112
    done = copy_partition(task(source, target, name, tmp_path, start_ms=low, end_ms=high))
    expected = [row[1:] for row in wanted(source) if low <= row[1] < high]
    assert list(got(client, name).values()) == expected
    assert done.next_offset == source.next_offset


def test_no_transaction_is_open_for_long(
    source: LogBuilder, target: tidelog.Broker, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where little of much is wanted: what was found is committed while the rest is looked through."""
    name = new_topic(client, "sparse")
    monkeypatch.setattr(copier, "CHUNK_SECONDS", 0.0)
    few = replace(task(source, target, name, tmp_path, start_ms=NOON + 33, end_ms=NOON + 112), chunk_bytes=1 << 30)
    done = copy_partition(few)
    assert done.chunks > 3
    assert list(got(client, name).values()) == [row[1:] for row in wanted(source) if NOON + 33 <= row[1] < NOON + 112]


def test_one_target_partition_has_one_source(source: LogBuilder, target: tidelog.Broker, client: Client, tmp_path: Path) -> None:
    name = new_topic(client, "two-sources")
    copy_partition(task(source, target, name))
    with pytest.raises(InvalidArgumentError, match="has copied a different source partition into two-sources-0"):
        copy_partition(replace(task(source, target, name), source=TopicPartition("other", 0)))


def test_a_target_that_was_made_anew_is_not_gone_on_with(
    source: LogBuilder, target: tidelog.Broker, client: Client, tmp_path: Path
) -> None:
    """What was copied before is missing there, and nothing would ever say so."""
    name = new_topic(client, "again")
    whole = task(source, target, name, tmp_path)
    half = replace(whole, end_offset=100, splits=tuple(replace(split, end_offset=100) for split in whole.splits))
    copy_partition(half)
    wish = DeleteTopicsRequest(topics=[], topic_names=[name], timeout_ms=10_000)
    assert [one.error_code for one in client.cluster.ask_any(wish, DeleteTopicsResponse, newest=5).responses] == [0]
    client.cluster.topic_now(name, create=True)
    with pytest.raises(
        OffsetOutOfRangeError, match=r"again-0 of the target ends before the last offset copied into it.* found 0, expected"
    ):
        copy_partition(whole)
    assert not got(client, name)


def test_a_map_that_was_lost_passes_nothing_over(
    source: LogBuilder, target: tidelog.Broker, client: Client, tmp_path: Path
) -> None:
    name = new_topic(client, "lost-map")
    whole = task(source, target, name, tmp_path)
    copy_partition(replace(whole, end_offset=100, splits=tuple(replace(split, end_offset=100) for split in whole.splits)))
    (tmp_path / f"{TOPIC}-0.offsetmap").unlink()
    copy_partition(replace(whole, start_offset=100))
    maps = OffsetMap.open(tmp_path).partition(SOURCE)
    assert maps.target_of(50) == (0, False), "before it, and nobody knows how far"
    assert maps.next_source_offset == whole.end_offset
