"""No damage to an index changes an answer: finds, ranges and largest timestamps are those of a plain reading.

A case is one log with one damage, of which all is asked: 120 cases a run, 13,000 in `make soak`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate, islice
from pathlib import Path

import pytest

from tests.examples import IS_SOAK
from tests.reader import build, hint_damage
from tests.reader.build import LogBuilder
from tests.reader.hint_damage import SECOND, TIME_ENTRY, TOPIC, Sample
from tidelog.errors import CorruptBatchError, CorruptDataError
from tidelog.formats import names
from tidelog.formats.time_map import TimeMap
from tidelog.model import LATEST, MAX_TIMESTAMP
from tidelog.reader import mapped_head, proven_head
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.segment import Segment
from tidelog.reader.time_map_file import rebuild_time_map
from tidelog.reader.time_search import find_offset
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType
from tidelog.records.kernel import COMPILED
from tidelog.sources.plan import plan
from tidelog.sources.split_reader import read_split

DAMAGES_PER_LOG = 12
LOGS = 500 if IS_SOAK else 4
LEADING_LOGS = LOGS * (4 if IS_SOAK else 2)
LARGE_LOGS = 40 if IS_SOAK else 1

Lies = Callable[[Path, random.Random], Iterator[str]]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR")


def finds(log: Log, times: list[int]) -> list[tuple[int, int] | None]:
    answers = (find_offset(log, time) for time in times)
    return [None if found is None else (found.offset, found.timestamp) for found in answers]


def plain_finds(sample: Sample) -> list[tuple[int, int] | None]:
    return [next((record for record in sample.records if record[1] >= time), None) for time in sample.times]


def ranged(
    sample: Sample, start: int | None, end: int | None, first: int, last: int | None, split_bytes: int | None
) -> list[int]:
    found = plan(LogDir(sample.data_dir), TOPIC, start=start, end=end, offsets={0: (first, last)}, split_bytes=split_bytes)
    rows: list[int] = []
    for split in found.splits:
        for batch in read_split(split, ["offset"]):
            rows += batch.column(0).to_pylist()
    return rows


def check(sample: Sample, rng: random.Random, what: str) -> None:
    """Ask everything once, in any order of times, and compare it with a plain reading."""
    times = rng.sample(sample.times, min(25, len(sample.times)))
    for asked in [times, times[:1]]:
        with Log.open(sample.directory) as log:
            plain = plain_finds(sample._replace(times=asked))
            assert finds(log, asked) == plain, what
    largest = max(time for _, time in sample.records)
    with Log.open(sample.directory) as log:
        found = find_offset(log, MAX_TIMESTAMP)
        assert (None if found is None else (found.offset, found.timestamp)) == next(
            (record for record in sample.records if record[1] == largest and largest >= 0), None
        ), what
        latest = find_offset(log, LATEST)
        assert latest is not None
        assert latest.offset == sample.records[-1][0] + 1, what
    for _ in range(2):
        start, end = sorted(rng.choices(sample.times, k=2))
        bounds = (None if rng.random() < 0.2 else start, None if rng.random() < 0.3 else end)
        first = rng.choice([0, 0, rng.choice(sample.records)[0]])
        last = rng.choice([None, None, rng.choice(sample.records)[0]])
        if last is not None and last < first:
            first, last = last, first
        split_bytes = rng.choice([None, 64, 500, 20_000])
        rows = [
            offset
            for offset, time in sample.records
            if offset >= first
            and (last is None or offset < last)
            and (bounds[0] is None or time >= bounds[0])
            and (bounds[1] is None or time < bounds[1])
            and (time >= 0 or bounds == (None, None))
        ]
        assert ranged(sample, *bounds, first, last, split_bytes) == rows, f"{what}: {bounds} {first} {last} {split_bytes}"


def run(tmp_path: Path, seed: int, lies: Lies, *, large: bool = False, is_mapped: bool = False) -> None:
    rng = random.Random(seed)
    sample = hint_damage.write_log(tmp_path / str(seed), rng, large=large)
    if is_mapped:
        for path in hint_damage.logs_of(sample.directory):
            rebuild_time_map(path, block_bytes=rng.choice([1, 300, 2000]))
    check(sample, rng, "sound")
    for what in islice(lies(sample.directory, rng), DAMAGES_PER_LOG):
        check(sample, rng, f"seed {seed}: {what}")


def test_any_damage_where_the_head_is_walked(tmp_path: Path) -> None:
    for seed in range(LOGS):
        run(tmp_path, seed, hint_damage.any_lies)


def test_an_entry_that_leads_into_a_value(tmp_path: Path) -> None:
    for seed in range(30_000, 30_000 + LEADING_LOGS):
        run(tmp_path, seed, hint_damage.nested_lies)


def test_any_damage_where_time_maps_say_how_late_the_head_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proven_head, "MAPPED_BYTES", 0)
    told = Counter[bool]()

    def largest_by_map(segment: Segment, time_map: TimeMap, position: int) -> int | None:
        largest = mapped_head_largest(segment, time_map, position)
        told[largest is not None] += 1
        return largest

    mapped_head_largest = mapped_head.largest_by_map
    monkeypatch.setattr(mapped_head, "largest_by_map", largest_by_map)
    for seed in range(60_000, 60_000 + LOGS):
        run(tmp_path, seed, hint_damage.any_lies, is_mapped=True)
    assert all(told[one] > 10 * LOGS for one in (False, True))


def test_a_map_says_nothing_of_control_batches_and_of_a_log_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proven_head, "MAPPED_BYTES", 0)
    builder = LogBuilder(tmp_path / "t-0", interval_bytes=0)
    producer = Producer(7, 0, 0)
    builder.append(build.batch(0, [100], producer=producer, transactional=True), build.marker(1, 500, ControlType.COMMIT, 7))
    builder.append(*(build.batch(offset, [198 + offset]) for offset in range(2, 6))).close()
    path = builder.file(0, names.LOG_SUFFIX)
    rebuild_time_map(path, block_bytes=1)
    # The entry is as its batch is; the marker before it is later.
    builder.file(0, names.TIME_INDEX_SUFFIX).write_bytes(TIME_ENTRY.pack(200, 2))
    with builder.open() as log:
        assert finds(log, [200, 201]) == [(1, 500), (1, 500)]

    other = LogBuilder(tmp_path / "u-0", interval_bytes=0)
    other.append(*(build.batch(offset, [100 + offset]) for offset in range(6))).close()
    path = other.file(0, names.LOG_SUFFIX)
    rebuild_time_map(path, block_bytes=1)
    changed = bytearray(path.read_bytes())
    header = hint_damage.headers_of(path)[1]
    changed[header.position : header.end_position] = build.batch(1, [900])
    path.write_bytes(changed)
    other.file(0, names.TIME_INDEX_SUFFIX).write_bytes(TIME_ENTRY.pack(104, 4))
    with other.open() as log:
        assert finds(log, [104]) == [(1, 900)]


def test_a_wrong_entry_where_it_is_too_far_to_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry, or the length, in a log that is larger than the budget: the entry before it says."""
    monkeypatch.setattr(proven_head, "MAX_BYTES", 0)
    for seed in range(LOGS):
        run(tmp_path, 10_000 + seed, hint_damage.single_lies)


def test_batches_of_up_to_300_kb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(LARGE_LOGS):
        run(tmp_path, 20_000 + seed, hint_damage.any_lies, large=True)
    monkeypatch.setattr(proven_head, "MAX_BYTES", 0)
    for seed in range(LARGE_LOGS):
        run(tmp_path, 30_000 + seed, hint_damage.single_lies, large=True)


class TestTwoLiesThatAgree:
    """Batches with the times 1 10 3 5 6 12, and a time index that has (5, 3) and (6, 4): each batch is as its entry says."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        builder = LogBuilder(tmp_path / "t-0", interval_bytes=0)
        builder.append(*(build.batch(offset, [time]) for offset, time in enumerate([1, 10, 3, 5, 6, 12]))).close()
        builder.file(0, names.TIME_INDEX_SUFFIX).write_bytes(TIME_ENTRY.pack(5, 3) + TIME_ENTRY.pack(6, 4))
        return builder.open()

    def test_are_seen_where_the_head_is_walked(self, log: Log) -> None:
        assert finds(log, [8]) == [(1, 10)]

    def test_are_believed_with_a_note_where_it_is_too_far_to_walk(
        self, log: Log, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The limit that docs/spec/what-is-believed.md states."""
        caplog.set_level("WARNING")
        monkeypatch.setattr(log.segments[0].head, "largest_before", lambda position: None)
        assert finds(log, [8, 8]) == [(5, 12)] * 2
        (note,) = [record.getMessage() for record in caplog.records]
        assert "the log is too large to check every batch's timestamp" in note


def test_an_index_of_another_state_of_a_log_of_many_batches(tmp_path: Path) -> None:
    """One row's time was corrected: each entry of the old index agrees with its batch, and with its neighbours."""
    count, corrected = 17_500, 300
    old = [time * SECOND for time in range(count)]
    new = [*old[:corrected], 17_000 * SECOND + 1, *old[corrected + 1 :]]
    indexes = []
    for name, times in (("old", old), ("new", new)):
        builder = LogBuilder(tmp_path / name / "t-0", interval_bytes=4096, index_bytes=1 << 20)
        builder.append(*(build.batch(offset, [time], value=b"") for offset, time in enumerate(times))).close()
        indexes.append(builder.file(0, names.TIME_INDEX_SUFFIX))
    indexes[1].write_bytes(indexes[0].read_bytes())
    with builder.open() as log:
        assert finds(log, [16_900 * SECOND, 17_000 * SECOND + 1, 17_001 * SECOND]) == [
            (corrected, new[corrected]),
            (corrected, new[corrected]),
            (17_001, 17_001 * SECOND),
        ]


@pytest.mark.parametrize("is_compiled", [True, False])
def test_headers_are_followed_by_the_kernel_as_one_by_one(
    tmp_path: Path, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proven_head, "COMPILED", is_compiled and COMPILED)
    for seed in range(20):
        sample = hint_damage.write_log(tmp_path / f"{is_compiled}{seed}", random.Random(seed), large=seed % 5 == 0)
        for path in hint_damage.logs_of(sample.directory):
            headers = hint_damage.headers_of(path)
            reached = [-1, *accumulate((header.max_timestamp for header in headers), max)]
            with Log.open(sample.directory) as log:
                head = next(segment.head for segment in log.segments if segment.log_path == path)
                for header, before in zip(headers, reached, strict=False):
                    assert head.largest_before(header.position) == before
                with pytest.raises(CorruptDataError):
                    head.largest_before(headers[-1].position + 1)


def test_a_wrong_entry_far_behind_the_one_before(tmp_path: Path) -> None:
    """The entry of offset 1 leads to offset 30, which is as late, but after offset 2: 8 MB after the entry before."""
    times = [0, 5, 9, *[4] * 27, 5, 12]
    builder = LogBuilder(tmp_path / "t-0", interval_bytes=0)
    builder.append(*(build.batch(offset, [time], value=bytes(300_000)) for offset, time in enumerate(times))).close()
    path = builder.file(0, names.TIME_INDEX_SUFFIX)
    content = bytearray(path.read_bytes())
    assert content[:12] == TIME_ENTRY.pack(5, 1)
    path.write_bytes(TIME_ENTRY.pack(5, 30) + TIME_ENTRY.pack(12, 31))
    for max_bytes in (0, proven_head.MAX_BYTES):
        log = builder.open()
        log.segments[0].head = proven_head.ProvenHead(log.segments[0].file, 0, proven_head.WalkBudget(max_bytes))
        assert finds(log, [5, 6, 9, 10]) == [(1, 5), (2, 9), (2, 9), (31, 12)]


class TestNames:
    """A segment under another base offset: every answer is right or an error."""

    @pytest.mark.parametrize("byte", range(8))
    def test_a_first_batch_whose_offset_is_too_high(self, tmp_path: Path, byte: int) -> None:
        """It looks like a hole before it, and would hide all that follows; the next batch says that it is none."""
        builder = LogBuilder(tmp_path / "t-0", interval_bytes=0)
        builder.append(*(build.batch(offset, [offset]) for offset in range(20))).close()
        path = builder.file(0, names.LOG_SUFFIX)
        content = bytearray(path.read_bytes())
        content[byte] ^= 1 << 6 if byte < 7 else 1 << 2
        path.write_bytes(content)
        with pytest.raises(CorruptBatchError):
            builder.open().check_names()

    @pytest.mark.parametrize("suffixes", [[".log"], [".log", ".index", ".timeindex"]])
    def test_a_renamed_segment(self, tmp_path: Path, suffixes: list[str]) -> None:
        refused = 0
        for seed in range(LOGS):
            rng = random.Random(60_000 + seed)
            sample = hint_damage.write_log(tmp_path / str(seed), rng)
            logs = hint_damage.logs_of(sample.directory)
            for log in logs:
                base, end = int(log.stem), sample.records[-1][0] + 5
                others = {int(other.stem) for other in logs}
                other = rng.choice([offset for offset in {*range(end), base + 1, max(0, base - 1)} if offset not in others])
                for old, new in [(base, other), (other, base)]:
                    for suffix in suffixes:
                        (sample.directory / names.file_name(old, suffix)).rename(sample.directory / names.file_name(new, suffix))
                    if new == other:
                        refused += self.is_refused(sample, rng, f"seed {seed}: {old} is named {new}")
        assert refused > LOGS

    def is_refused(self, sample: Sample, rng: random.Random, what: str) -> bool:
        try:
            check(sample, rng, what)
        except CorruptDataError as error:
            assert error.path is not None
            return True
        return False

    def test_a_hole_before_a_segment_is_none(self, tmp_path: Path) -> None:
        """Compaction leaves segments that begin after their names, and the one before ends below."""
        builder = LogBuilder(tmp_path / "t-0").append(build.batch(0, [1, 2])).roll(10).append(build.batch(15, [3])).close()
        assert finds(builder.open(), [1, 3]) == [(0, 1), (15, 3)]


class TestLogStart:
    """The log start offset checkpoint is believed; the leader epochs confirm it, or what it hides is reported."""

    @pytest.mark.parametrize(
        ("log_start", "epoch_start", "hidden"),
        [
            (0, 0, []),
            (4, 4, []),
            (8, 8, []),
            (4, 0, [(0, 4, "hidden")]),
            (8, 0, [(0, 8, "hidden")]),
            (9, 0, [(0, 8, "hidden")]),
            (4, None, [(0, 4, "perhaps_deleted")]),
            (8, None, [(0, 8, "perhaps_deleted")]),
            (2, 4, [(0, 2, "perhaps_deleted")]),
            (9, 9, []),
        ],
    )
    def test_what_is_hidden(
        self, tmp_path: Path, log_start: int, epoch_start: int | None, hidden: list[tuple[int, int, str]]
    ) -> None:
        builder = LogBuilder(tmp_path / "t-0").append(*(build.batch(i, [i], epoch=0) for i in range(8))).close()
        if epoch_start is not None:
            (builder.directory / names.LEADER_EPOCH_CHECKPOINT).write_text(f"0\n1\n0 {epoch_start}\n")
        log = builder.open(log_start_offset=log_start)
        assert finds(log, [0]) == [(log_start, log_start) if log_start < 8 else None]
        assert [(one.first_offset, one.end_offset, one.kind) for one in log.missing()] == hidden
        assert [one.is_loss for one in log.missing()] == [kind == "hidden" for _, _, kind in hidden]

    def test_whole_segments_below_it(self, tmp_path: Path) -> None:
        """As for the minutes before the broker removes them."""
        builder = LogBuilder(tmp_path / "t-0").append(build.batch(0, [1, 2], epoch=0)).roll().append(build.batch(2, [3], epoch=0))
        builder.close()
        for text, kinds in [("0\n1\n0 2\n", []), ("0\n1\n0 0\n", ["hidden"]), ("0\n0\n", ["perhaps_deleted"])]:
            (builder.directory / names.LEADER_EPOCH_CHECKPOINT).write_text(text)
            assert [one.kind for one in builder.open(log_start_offset=2).missing()] == kinds

    def test_nothing_is_below_it(self, tmp_path: Path) -> None:
        """An empty segment, and a cleaned one that begins after the log start."""
        builder = LogBuilder(tmp_path / "t-0").roll(4).append(build.batch(6, [3], epoch=0)).close()
        (builder.directory / names.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 0\n")
        assert [one.kind for one in builder.open(log_start_offset=5).missing() if "hidden" in one.kind] == []

    @pytest.mark.parametrize(
        ("log_start", "epoch_start", "told"),
        [(0, 0, []), (4, 0, []), (0, 4, ["the leader epochs begin at 4: offsets [0, 4) may have been deleted, but are read"])],
    )
    def test_what_is_told(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, log_start: int, epoch_start: int | None, told: list[str]
    ) -> None:
        caplog.set_level("WARNING")
        builder = LogBuilder(tmp_path / "t-0").append(*(build.batch(i, [i], epoch=0) for i in range(8))).close()
        if epoch_start is not None:
            (builder.directory / names.LEADER_EPOCH_CHECKPOINT).write_text(f"0\n1\n0 {epoch_start}\n")
        assert finds(builder.open(log_start_offset=log_start), [0]) == [(log_start, log_start)]
        assert [record.getMessage() for record in caplog.records] == [f"{builder.directory}: {text}" for text in told]


def test_an_offset_that_the_next_batch_contradicts_is_no_answer(tmp_path: Path) -> None:
    """No checksum covers a batch's offset, and a search ends at the batch that it looks for."""
    builder = LogBuilder(tmp_path / "t-0").append(*(build.batch(offset, [offset + 1]) for offset in range(5))).close()
    path = builder.file(0, names.LOG_SUFFIX)
    header = hint_damage.headers_of(path)[3]
    data = bytearray(path.read_bytes())
    data[header.position + 2] ^= 1
    path.write_bytes(data)
    with builder.open() as log, pytest.raises(CorruptDataError):
        find_offset(log, 4)
