"""A scan against a plain filter, on random logs.

Out of order, duplicates, no timestamps, control records, all codecs and formats, with and without indexes.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import tidelog
from tests.examples import examples
from tests.places import placed
from tests.sources.logs import ROW_COLUMNS, TOPIC, LogBuilder, expected, plain, rows_of
from tidelog.records.compression import Codec
from tidelog.sources.plan import plan
from tidelog.sources.split_reader import read_split

pytestmark = pytest.mark.usefixtures("quiet")

NOON = 1_373_457_600_000

times = st.one_of(st.integers(0, 5).map(lambda ms: NOON + ms), st.integers(0, 3), st.just(-1))
payloads = st.one_of(st.none(), st.binary(max_size=30), st.integers(0, 600).map(lambda size: b"x" * size))
records = st.tuples(times, payloads, payloads)


def later(time: int, ms: int) -> int:
    """Batches drift through time, so that indexes have something to say; very early and missing times stay what they are."""
    return time + ms if time >= NOON else time


header = st.tuples(st.text("aé水", max_size=3), st.one_of(st.none(), st.binary(max_size=3)))


@st.composite
def steps(draw: st.DrawFn) -> dict[str, Any]:
    """One thing that happens to a log."""
    kind = draw(st.sampled_from(["batch"] * 8 + ["transactional"] * 3 + ["end"] * 2 + ["roll"]))
    if kind == "end":
        return {"kind": kind, "producer_id": draw(st.integers(0, 2)), "timestamp": draw(times), "commit": draw(st.booleans())}
    if kind == "roll":
        return {"kind": kind}
    magic = 2 if kind == "transactional" else draw(st.sampled_from([0, 1, 2, 2]))
    codecs = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4] + ([Codec.ZSTD] if magic == 2 else [])
    drift = draw(st.integers(0, 30))
    batch = [(later(time, drift), key, value) for time, key, value in draw(st.lists(records, min_size=1, max_size=8))]
    step = {
        "kind": kind,
        "records": batch,
        "magic": magic,
        "codec": draw(st.sampled_from(codecs)),
        "append_time": draw(st.one_of(st.none(), st.integers(NOON, NOON + 35))) if magic else None,
        "headers": tuple(draw(st.lists(header, max_size=2))),
        "gaps": draw(st.sets(st.integers(0, 7), max_size=4)),
    }
    if kind == "transactional":
        step["producer_id"] = draw(st.integers(0, 2))
    return step


def write(directory: Path, happened: list[dict[str, Any]], **how: Any) -> LogBuilder:
    builder = LogBuilder(directory, **how)
    for step in happened:
        kind, arguments = step["kind"], {name: value for name, value in step.items() if name != "kind"}
        if kind == "roll":
            builder.roll() if builder.next_offset > max((int(path.stem) for path in builder.logs()), default=0) else None
        elif kind == "end":
            if arguments["producer_id"] in builder.open:
                builder.end_transaction(**arguments)
        else:
            builder.append(**arguments)
    return builder


@examples(60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_scan_equals_a_plain_filter(data: st.DataObject) -> None:
    happened = data.draw(st.lists(steps(), max_size=16), label="log")
    indexes = data.draw(st.sampled_from([{".index", ".timeindex"}, {".index"}, {".timeindex"}, set()]), label="indexes")
    with TemporaryDirectory() as folder:
        builder = write(
            Path(folder),
            happened,
            segment_bytes=data.draw(st.sampled_from([200, 1000, 1 << 20]), label="segment_bytes"),
            index_interval_bytes=data.draw(st.sampled_from([0, 100, 4096]), label="index_interval_bytes"),
            indexes=frozenset(indexes),
        )
        log_start = data.draw(st.one_of(st.none(), st.integers(0, builder.next_offset)), label="log_start")
        builder.close(log_start=log_start)
        place = placed(Path(folder))
        seen = sorted({row.timestamp for row in builder.rows if row.timestamp > 0} | {NOON})
        bound = st.one_of(st.none(), st.sampled_from(seen), st.sampled_from(seen).map(lambda ms: ms + 1), st.integers(0, 4))
        for _ in range(3):
            start, end = data.draw(bound, label="start"), data.draw(bound, label="end")
            if start is not None and end is not None and end < start:
                start, end = end, start
            first = data.draw(st.one_of(st.none(), st.integers(0, builder.next_offset)), label="first")
            last = data.draw(st.one_of(st.none(), st.integers(0, builder.next_offset)), label="last")
            if first is not None and last is not None and last < first:
                first, last = last, first
            committed = data.draw(st.booleans(), label="committed")
            asked: dict[str, Any] = {
                "start": start,
                "end": end,
                "offsets": {0: (first, last)},
                "isolation": "read_committed" if committed else "read_uncommitted",
            }
            wanted = plain(expected(builder, start, end, first=max(log_start or 0, first or 0), last=last, committed=committed))
            report = tidelog.ScanReport()
            views = data.draw(st.booleans(), label="views")
            got = rows_of(tidelog.scan(place, TOPIC, columns=ROW_COLUMNS, views=views, report=report, **asked))
            assert got == wanted
            assert report.records == len(wanted)

            split_bytes = data.draw(st.sampled_from([1, 100, 1000]), label="split_bytes")
            splits = pickle.loads(pickle.dumps(plan(place, TOPIC, split_bytes=split_bytes, **asked).splits))
            assert [row for split in splits for row in rows_of(read_split(split, ROW_COLUMNS))] == wanted
