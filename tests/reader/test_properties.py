"""Laws of the search by time, on random logs: out of order, duplicates, no timestamps, control records, all formats and codecs,
gaps, many segments; and with the files damaged at random."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.reader import build
from tests.reader.build import LogBuilder
from tidelog.errors import TidelogError
from tidelog.model import LATEST, MAX_TIMESTAMP
from tidelog.reader.log import Log
from tidelog.reader.segment import Segment
from tidelog.reader.time_search import find_offset
from tidelog.records.builder import Producer
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.records import Record, iter_records

MAX_TIME = 30
TARGETS = range(MAX_TIME + 2)

quick = examples(
    60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class Plan(NamedTuple):
    """A log to be built: (batch, gap before it, whether a segment ends before it), and how."""

    batches: list[tuple[dict[str, Any], int, bool]]
    interval_bytes: int
    log_start: int
    live: bool
    per_append: bool


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    times = st.integers(0, MAX_TIME)
    magics = draw(st.sampled_from([(2,), (1,), (0, 1), (1, 2), (0, 1, 2)]))
    formats = sorted(draw(st.lists(st.sampled_from(magics), min_size=0, max_size=14)))
    batches = []
    for magic in formats:
        one: dict[str, Any] = {"magic": magic}
        one["timestamps"] = draw(st.lists(times, min_size=1, max_size=4))
        codecs = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4] + ([Codec.ZSTD] if magic == 2 else [])
        one["codec"] = draw(st.sampled_from([Codec.NONE, Codec.NONE, *codecs]))
        kind = draw(st.sampled_from(["create", "create", "append", "none", "control"]))
        if kind == "append" and magic:
            one["append_time"] = draw(times)
        elif kind == "none" and magic:
            one["timestamps"] = [-1] * len(one["timestamps"])
        elif kind == "control" and magic == 2:
            one["control"] = True
        batches.append((one, draw(st.sampled_from([0, 0, 0, 1, 7])), draw(st.integers(0, 3)) == 0))
    return Plan(
        batches,
        draw(st.sampled_from([0, 0, 100, 300])),
        draw(st.sampled_from([0, 0, 0, 1, 5, 12])),
        draw(st.booleans()),
        draw(st.booleans()),
    )


@contextmanager
def built(plan: Plan) -> Iterator[LogBuilder]:
    """Write the log into a folder of its own, removed at the end."""
    folder = Path(tempfile.mkdtemp())
    try:
        builder = LogBuilder(folder / "t-0", interval_bytes=plan.interval_bytes, per_append=plan.per_append, index_bytes=1200)
        for one, gap, roll in plan.batches:
            offset = builder.next_offset + gap
            if roll:
                builder.roll()
            options = dict(one)
            if options.pop("control", False):
                builder.append(build.marker(offset, options["timestamps"][0], ControlType.COMMIT, 9))
            else:
                builder.append(build.batch(offset, options.pop("timestamps"), **options))
        builder.close_live() if plan.live else builder.close()
        yield builder
    finally:
        shutil.rmtree(folder)


def open_log(builder: LogBuilder, plan: Plan) -> Log:
    # The last batch may be v0 by chance; these laws are about topics whose format has timestamps.
    return builder.open(log_start_offset=plan.log_start, message_format=2)


def scan(builder: LogBuilder) -> list[Record]:
    """All records, control records included, from the bytes of the files: no index, no Log."""
    records = []
    for path in sorted(builder.directory.glob("*.log")):
        segment = Segment.open(path)
        for header in segment._walk(0, path.stat().st_size, crc=True):
            records += iter_records(header, segment.read_batch(header))
        segment.close()
    return records


def answer(records: list[Record], target: int) -> tuple[int, int] | None:
    return next(((record.offset, record.timestamp) for record in records if record.timestamp >= target), None)


def found(log: Log, target: int) -> tuple[int, int] | None:
    offset = find_offset(log, target)
    return None if offset is None else offset[:2]


def damages() -> st.SearchStrategy[list[tuple[str, int, int]]]:
    """(what, which of the files or bytes, how)"""
    one = st.tuples(
        st.sampled_from(["flip", "flip", "set", "cut", "pad", "zero", "remove", "copy"]),
        st.integers(0, 2**16),
        st.integers(0, 2**16),
    )
    return st.lists(one, min_size=1, max_size=4)


@given(plans())
@quick
def test_find_offset_is_what_a_plain_scan_finds(plan: Plan) -> None:
    with built(plan) as builder, open_log(builder, plan) as log:
        records = [record for record in scan(builder) if record.offset >= plan.log_start]
        for target in TARGETS:
            assert found(log, target) == answer(records, target)
        timed = [record for record in records if record.timestamp >= 0]
        largest = max((record.timestamp for record in timed), default=-1)
        assert found(log, MAX_TIMESTAMP) == next(((r.offset, r.timestamp) for r in timed if r.timestamp == largest), None)
        latest = find_offset(log, LATEST)
        assert latest is not None and latest.offset == max(builder.next_offset, plan.log_start, log.log_start_offset)


@given(plans())
@quick
def test_nothing_up_to_a_time_index_entry_is_later(plan: Plan) -> None:
    """Up to the batch of an entry (T, o), no batch exceeds T; and no record before an answer reaches its target."""
    with built(plan) as builder, open_log(builder, plan) as log:
        for segment in log.segments:
            headers = list(segment.headers())
            index = segment.time_index
            for entry in (index.entry(slot) for slot in range(0 if index is None else index.entries)):
                up_to = [header for header in headers if header.last_offset <= entry.offset]
                assert max(header.max_timestamp for header in up_to) == entry.timestamp
        records = scan(builder)
        for target in TARGETS:
            offset = found(log, target)
            if offset is not None:
                assert not [r for r in records if plan.log_start <= r.offset < offset[0] and r.timestamp >= target]


@given(plans(), damages())
@quick
def test_no_damage_to_an_index_changes_an_answer(plan: Plan, damage: list[tuple[str, int, int]]) -> None:
    with built(plan) as builder:
        records = [record for record in scan(builder) if record.offset >= plan.log_start]
        files = sorted(path for suffix in ("index", "timeindex") for path in builder.directory.glob(f"*.{suffix}"))
        for what, where, how in damage:
            do_damage(files, what, where, how)
        with open_log(builder, plan) as log:
            for target in TARGETS:
                assert found(log, target) == answer(records, target)
            assert log.log_end_offset == max(builder.next_offset, log.log_start_offset)
            for record in records:
                header = next(log.headers(record.offset))
                assert header.last_offset >= record.offset and (header.magic < 2 or header.base_offset <= record.offset)


@given(plans(), damages(), st.randoms(use_true_random=False))
@quick
def test_damage_to_a_log_gives_a_typed_error_or_a_right_answer(
    plan: Plan, damage: list[tuple[str, int, int]], chance: Any
) -> None:
    """Of a cut in the last segment only what was cut is missing. Flips spare what no checksum covers: a v2 batch's base
    offset and
    leader epoch, which its neighbours tell in most cases but not in all, and a legacy message's offset."""
    assume(any(one for one in plan.batches))
    with built(plan) as builder:
        whole = [record for record in scan(builder) if record.offset >= plan.log_start]
        logs = sorted(path for path in builder.directory.glob("*.log") if path.stat().st_size)
        path = chance.choice(logs)
        data = bytearray(path.read_bytes())
        covered = [
            i for header in Segment.open(path).headers() for i in covered_bytes(header.position, header.size, header.magic)
        ]
        kind = damage[0][0]
        if kind in ("cut", "remove"):
            assume(path == logs[-1] and path == sorted(builder.directory.glob("*.log"))[-1])
            del data[chance.randrange(len(data)) :]
        else:
            for _, where, how in damage:
                data[covered[where % len(covered)]] ^= 1 << how % 8
        path.write_bytes(data)
        try:
            with builder.open(log_start_offset=plan.log_start, message_format=2) as log:
                end = log.log_end_offset
                left = [record for record in whole if record.offset < end]
                assert left == whole or path == logs[-1]
        except TidelogError as error:
            assert error.path is not None
            return
        for target in TARGETS:
            try:
                with builder.open(log_start_offset=plan.log_start, message_format=2) as log:
                    assert found(log, target) == answer(left, target)
            except TidelogError as error:
                assert error.path is not None and error.position is not None
        try:
            with builder.open(log_start_offset=plan.log_start) as log:
                read = [
                    record
                    for segment, header in log.segment_headers(check_crc=True)
                    for record in iter_records(header, segment.read_batch(header), path=segment.log_path)
                    if record.offset >= plan.log_start
                ]
            assert read == left
        except TidelogError as error:
            assert error.path is not None and error.position is not None


def covered_bytes(position: int, size: int, magic: int) -> Iterator[int]:
    """Positions of a batch's length, magic and everything that its checksum covers."""
    start = 16 if magic < 2 else 17
    return itertools.chain(range(position + 8, position + 12), range(position + start, position + size))


def do_damage(files: list[Path], what: str, where: int, how: int) -> None:
    if not files:
        return
    path = files[where % len(files)]
    data = bytearray(path.read_bytes()) if path.exists() else bytearray()
    at = where // len(files) % len(data) if data else 0
    if what == "remove":
        path.unlink(missing_ok=True)
        return
    if what == "flip" and data:
        data[at] ^= 1 << how % 8
    elif what == "set" and data:
        data[at] = how % 40  # small numbers: near offsets and near times
    elif what == "cut":
        del data[at:]
    elif what == "pad":
        data += bytes(how % 50)
    elif what == "zero":
        data[at : at + how % 50] = bytes(len(data[at : at + how % 50]))
    elif what == "copy":
        other = files[how % len(files)]
        data = bytearray(other.read_bytes()) if other.exists() else data
    path.write_bytes(data)


@given(st.lists(st.tuples(st.sampled_from(["data", "plain", "commit", "abort"]), st.integers(0, 2)), max_size=25), st.booleans())
@quick
def test_read_committed_is_what_the_markers_say(steps: list[tuple[str, int]], live: bool) -> None:
    from tests.reader.test_golden import read_committed

    folder = Path(tempfile.mkdtemp())
    try:
        builder = LogBuilder(folder / "t-0", segment_bytes=400)
        pending: dict[int, list[int]] = {}
        visible: list[int] = []
        for offset, (kind, producer_id) in enumerate(steps):
            if kind == "data":
                builder.append(build.batch(offset, [1], producer=Producer(producer_id, 0, 0), transactional=True))
                pending.setdefault(producer_id, []).append(offset)
            elif kind == "plain":
                builder.append(build.batch(offset, [1]))
                visible.append(offset)
            else:
                control = ControlType.COMMIT if kind == "commit" else ControlType.ABORT
                builder.append(build.marker(offset, 1, control, producer_id))
                visible += pending.pop(producer_id, []) if kind == "commit" else []
                pending.pop(producer_id, None)
        builder.close_live() if live else builder.close()
        stable = min((offsets[0] for offsets in pending.values()), default=len(steps))
        with builder.open() as log:
            assert log.last_stable_offset == stable
            assert read_committed(log) == sorted(one for one in visible if one < stable)
    finally:
        shutil.rmtree(folder)
