"""`skipDamaged` in a stream from a growing folder: every record that is sound, once, and each damage in the words of a batch."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

import tidelog
from tests.sources.logs import TOPIC, LogBuilder
from tests.spark.stream_query import Query, Rows
from tests.spark.test_stream_folder import fill, query, rows
from tidelog.clock import ManualClock
from tidelog.errors import CorruptDataError
from tidelog.reader.log import Log
from tidelog.spark.options import parse_options
from tidelog.spark.tasks import plan_tasks

SOURCE = "tidelog.spark"


def damage(folder: Path, offset: int, at: int = 70) -> None:
    """Flip a bit of the batch that begins at an offset."""
    with Log.open(folder / f"{TOPIC}-0", skip_damaged=True) as log:
        places = {header.base_offset: (one.log_path, header.position) for one in log.segments for header in one.headers()}
    path, position = places[offset]
    data = bytearray(path.read_bytes())
    data[position + at] ^= 1
    path.write_bytes(data)


def words(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of what is left out."""
    found = [record.getMessage() for record in caplog.records if record.name == SOURCE and "left out" in record.getMessage()]
    caplog.clear()
    return found


def words_of_a_batch(folder: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    words(caplog)
    plan_tasks(parse_options({"path": str(folder), "subscribe": TOPIC, "skipDamaged": "true"}, ManualClock(0)), 2)
    return words(caplog)


def offsets(found: Rows | None) -> list[int]:
    return [offset for _, _, offset in found or ()]


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, SOURCE)


def test_a_damaged_batch_ends_a_stream_that_does_not_skip_it(tmp_path: Path) -> None:
    fill(LogBuilder(tmp_path), 30)
    damage(tmp_path, 10)
    with pytest.raises(CorruptDataError):
        query(tmp_path).run_all()
    assert query(tmp_path, skipDamaged="true").run_all() == [*rows(0, 0, 10), *rows(0, 15, 30)]


def test_batch_and_stream_say_the_same_of_a_growing_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder = LogBuilder(tmp_path, segment_bytes=1000)
    fill(builder, 50)
    damage(tmp_path, 20)
    stream = query(tmp_path, skipDamaged="true")
    assert stream.run() == [*rows(0, 0, 20), *rows(0, 25, 50)]
    first = words(caplog)
    assert len(first) == 1
    assert "offsets [20, 25) left out, 5 records: bytes" in first[0]
    assert first == words_of_a_batch(tmp_path, caplog)
    # It grows, and a batch that came is damaged.
    fill(builder, 40)
    damage(tmp_path, 60)
    assert stream.run() == [*rows(0, 50, 60), *rows(0, 65, 90)]
    second = words(caplog)
    assert ["[60, 65)" in one for one in second] == [True]
    assert [*first, *second] == words_of_a_batch(tmp_path, caplog)
    # The newest batch: the position waits before it until something sound lies after it.
    fill(builder, 10)
    damage(tmp_path, 95)
    assert offsets(stream.run()) == list(range(90, 95))
    assert stream.run() is None
    assert ["[95, 100)" in one for one in words(caplog)] == [True]
    fill(builder, 5)
    assert offsets(stream.run()) == list(range(100, 105))
    third = words(caplog)
    assert ["[95, 100)" in one for one in third] == [True]
    assert [*first, *second, *third] == words_of_a_batch(tmp_path, caplog)
    # Nothing is said twice, but by a query that is started again.
    assert stream.run_all() == []
    assert words(caplog) == []
    stream.close()


def test_the_same_batch_again_after_a_crash(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was planned is read again in the same way, also if the folder was damaged in between."""
    fill(LogBuilder(tmp_path), 30)
    damage(tmp_path, 10)
    stream = query(tmp_path, skipDamaged="true")
    before = stream.run(crashes="read")
    told = words(caplog)
    stream.restart()
    assert stream.run() == before
    assert words(caplog) == told
    stream.close()


@pytest.mark.parametrize("seed", range(12))
def test_what_is_delivered_and_what_is_left_out_are_all_records(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(seed)
    builder = LogBuilder(tmp_path, segment_bytes=rng.choice([600, 2000, 1 << 20]))
    stream = Query({"path": tmp_path, "subscribe": TOPIC, "startingOffsets": "earliest", "skipDamaged": "true"})
    seen: list[int] = []
    for _ in range(6):
        first = builder.next_offset
        fill(builder, 40)
        for offset in rng.sample(range(first, first + 40, 5), rng.randrange(4)):
            damage(tmp_path, offset, rng.choice([17, 40, 70, 90]))
        fill(builder, 5)
        seen += offsets(stream.run())
    stream.close()
    report = tidelog.ScanReport()
    whole = tidelog.scan(tmp_path, TOPIC, skip_damaged=True, report=report).read_all()["offset"].to_pylist()
    assert seen == whole
    lost = [offset for one in report.left_out for offset in range(one.first_offset, one.end_offset)]
    assert sorted(seen + lost) == list(range(builder.next_offset))
    assert words(caplog) == [str(one) for one in report.left_out]
