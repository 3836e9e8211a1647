"""What consumers see and compute, the article's claims and the migration's cells, against a few plain lines each."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from studies.case import Case, Measurement, Measurements
from studies.chapter import Claim, Plot, Table, Verdict
from studies.options import STUDY, good_things, migration, observed, option_table, pipeline, sizes
from studies.options.good_things import Cut
from studies.workload import generate, mirrored
from tidelog.records.compression import Codec

CASE = Case(observed.PART, "1 min", {"records": 80})


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Measurements:
    return Measurements(observed.measure(CASE, tmp_path_factory.mktemp("pipeline")))


def times() -> tuple[list[int], list[int], list[int], list[int]]:
    """Made, arrived in cluster 1, arrived in cluster 2, consumer's delay; by number."""
    messages = generate(observed.workload(CASE))
    copied = mirrored(messages, observed.MIRROR_LATENCY, observed.SEED + 1)
    made, first = {}, {}
    for number, at, arrival in zip(
        messages.numbers.tolist(), messages.made_ms.tolist(), messages.arrival_ms.tolist(), strict=True
    ):
        made[number], first[number] = at, arrival
    second = dict(zip(copied.numbers.tolist(), copied.arrival_ms.tolist(), strict=True))
    delay = np.random.default_rng(observed.SEED + 2).exponential(observed.CONSUMER_DELAY_MS, len(made)).astype(np.int64)
    return *([column[n] for n in range(len(made))] for column in (made, first, second)), delay.tolist()


@pytest.mark.parametrize("subject", pipeline.SUBJECTS)
def test_windows_and_latencies_are_those_of_a_plain_calculation(found: Measurements, subject: str) -> None:
    made, first, _, _ = times()
    has_create = subject not in ("option 2", "accepted: LogAppendTime")
    has_append = subject not in ("option 3", "accepted: CreateTime")
    event = made if has_create else first
    wrong = sum(a // 60_000 != b // 60_000 for a, b in zip(made, event, strict=True))
    windows = {}
    for column, sign in ((made, 1), (event, -1)):
        for time in column:
            windows.setdefault(time // 60_000, []).append(sign)
    assert found.value("windows", "1 min", subject, "messages in the wrong window") == wrong / len(made)
    expected = sum(sum(signs) != 0 for signs in windows.values()) / len(windows)
    assert found.value("windows", "1 min", subject, "windows with a wrong count") == pytest.approx(expected)
    latency = [b - a for a, b in zip(made, first, strict=True)]
    mean = sum(latency) / len(latency)
    for what, can in (("end-to-end latency", has_create), ("lag in time", has_append)):
        assert found.value("latency", "1 min", subject, f"{what} computable") == can
        assert found.value("latency", "1 min", subject, f"{what}, mean error") == pytest.approx(0 if can else mean)


def test_the_truth_of_latency_and_lag(found: Measurements) -> None:
    made, first, _, delay = times()
    lag = sum(delay) / len(delay)
    assert found.value("latency", "1 min", "option 1", "lag in time, truth") == pytest.approx(lag)
    total = sum(b - a for a, b in zip(made, first, strict=True)) / len(made) + lag
    assert found.value("latency", "1 min", "option 1", "end-to-end latency, truth") == pytest.approx(total)


def test_the_drafts_four_steps(found: Measurements) -> None:
    steps = {subject: found.text("mirror", "1 min", subject, "steps of a message") for subject in pipeline.SUBJECTS}
    assert steps["option 1"] == "(T0, -1) → (T0, T1) → (T0, T1) → (T0, T2)"
    assert steps["option 2"] == "(-, -1) → (-, T1) → (-, T1) → (-, T2)"
    assert steps["option 3"] == "(T0, -) → (T0, -) → (T0, -) → (T0, -)"
    assert steps["accepted: CreateTime"] == "(T0, -1) → (T0, -1) → (T0, -1) → (T0, -1)"
    assert steps["accepted: LogAppendTime"] == "(T0, -1) → (-1, T1) → (T1, T1) → (-1, T2)"
    assert steps[pipeline.HANDED_ON] == "(T0, -1) → (T0, T1) → (T0, -1) → (T0, T2)"


def test_what_a_mirror_keeps(found: Measurements) -> None:
    _, _, second, _ = times()
    keeps = {"option 1", "option 3", pipeline.PAYLOAD, "accepted: CreateTime", pipeline.HANDED_ON}
    stamps = {"option 1", "option 2", pipeline.PAYLOAD, "accepted: LogAppendTime", pipeline.HANDED_ON}
    for subject in pipeline.SUBJECTS:
        assert found.value("mirror", "1 min", subject, "CreateTime as made, in target") == (subject in keeps)
        assert found.value("mirror", "1 min", subject, "LogAppendTime differs") == (subject in stamps)
        assert found.value("mirror", "1 min", subject, "leader and follower differ") == 0
    # Option 3's index tells the first append of each minute, and no other.
    order = sorted(second)
    firsts = list(itertools.accumulate(order, lambda last, time: time if time // 60_000 > last // 60_000 else last))
    share = sum(a == b for a, b in zip(order, firsts, strict=True)) / len(order)
    assert found.value("mirror", "1 min", "option 3", "LogAppendTime in the index") == share
    mean = sum(a - b for a, b in zip(order, firsts, strict=True)) / len(order)
    assert found.value("mirror", "1 min", "option 3", "index's mean error") == pytest.approx(mean)


def test_bytes_of_the_options(found: Measurements) -> None:
    """42 bytes of fields with both times and no key, 34 with one; 8 more in the payload."""
    expected = {"option 1": 142, "option 2": 134, "option 3": 134, pipeline.PAYLOAD: 142}
    for subject, size in expected.items():
        assert found.value("windows", "1 min", subject, "bytes a message") == size


# --- the article's claims


def test_kept_as_promised_by_hand() -> None:
    first = Cut((0, 4), (4, 4), np.array([0]), np.array([0]), 0, 0)
    hour = 3_600_000
    second = Cut((0, 5), (5, 3), np.array([-1, 0, hour + 1, hour + 2]), np.array([5, 5, -5, 5]), 77, 3)
    said = {metric: value for metric, value, _ in good_things.judge(first, second)}
    assert said["segments that begin alike"] == 1 / 3
    assert said["segments of one request"] == 2
    assert said["messages kept as long as promised, from append"] == 0.5
    assert said["messages kept as long as promised, from making"] == 0.75
    assert (said["kept after append, least"], said["kept after append, most"]) == (-1, hour + 2)
    assert (said["steps back"], said["longest segment"]) == (3, 77)


def test_a_cut_is_what_plain_rules_give(tmp_path) -> None:
    """On a LogAppendTime topic: by the append times, request by request."""
    messages = good_things.messages_of("pattern 3", 60)
    cut = good_things.run("LogAppendTime", messages, tmp_path)
    arrivals = messages.arrival_ms.tolist()
    appended = [arrivals[min(i // 5 * 5 + 4, len(arrivals) - 1)] for i in range(len(arrivals))]
    bases = [0]
    for offset in range(0, len(appended), 5):
        if appended[offset] - appended[bases[-1]] > good_things.SEGMENT_MS:
            bases.append(offset)
    ends = [*bases[1:], len(appended)]
    assert cut.first_numbers == tuple(messages.numbers[bases].tolist())
    expected = [appended[end - 1] + 1 - appended[o] for base, end in zip(bases, ends, strict=True) for o in range(base, end)]
    assert cut.after_append_ms.tolist() == expected
    made = messages.made_ms.tolist()
    expected = [appended[end - 1] + 1 - made[o] for base, end in zip(bases, ends, strict=True) for o in range(base, end)]
    assert cut.after_made_ms.tolist() == expected
    assert cut.steps_back == 0


# --- the migration's cells


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_the_migrations_cells(codec: Codec) -> None:
    """Converted where formats differ; and where v0 is compressed, because its offsets are inside."""
    for cell in migration.CELLS:
        if cell.kind == "produce":
            assert migration.produce(cell, codec)() == (cell.magic != cell.disk or (cell.disk == 0 and codec is not Codec.NONE))
        else:
            assert migration.fetch(cell.disk, cell.magic, codec)() == (cell.disk > cell.magic)
    old, new = (len(migration.request(magic, codec, offset)) for magic, offset in ((0, 1000), (1, 1000 + sizes.MESSAGES)))
    assert migration.mixed(codec) == new / (old + new)


# --- the chapter


def test_verdicts() -> None:
    assert option_table.verdict(True) is option_table.verdict(True, True) is Verdict.CONFIRMED
    assert option_table.verdict(False, True) is Verdict.PARTLY
    assert option_table.verdict(False) is option_table.verdict(False, False) is Verdict.REFUTED


class MadeUp(Measurements):
    """Every measurement is there, and says `default`, unless it is told otherwise by its metric."""

    def __init__(self, default: float, **told: float) -> None:
        super().__init__([])
        self.default, self.told = default, {name.replace("_", " "): value for name, value in told.items()}

    def get(self, part: str, case: str, subject: str, metric: str) -> Measurement:
        value = self.told.get(f"{part} {subject}", self.told.get(part, self.default))
        return Measurement(part, case, subject, metric, value, "", "(T0, -1) → (T0, T1) → (T0, T1) → (T0, T2)")


def tables_of(measured: Measurements) -> dict[str, Table]:
    return {part.id: part for part in STUDY.present(measured).parts if isinstance(part, Table)}


def test_the_chapter_has_the_drafts_table_row_by_row() -> None:
    chapter = STUDY.present(MadeUp(1))
    comparison = next(part for part in chapter.parts if part.id == "options-comparison")
    assert isinstance(comparison, Table)
    assert [row[0] for row in comparison.rows] == [
        "Mirror maker",
        "Log retention",
        "Log rolling",
        "Stream processing",
        "Latency measurement",
        "Search by timestamp",
    ]
    for row in comparison.rows[:-1]:
        assert all(isinstance(cell, Claim) for cell in row[1:5])
    plots = [part for part in chapter.parts if isinstance(part, Plot)]
    assert {plot.id for plot in plots} == {"options-overhead-plot", "options-windows-plot", "options-retention-plot"}
    assert chapter.findings
    assert chapter.assumptions


def test_verdicts_follow_the_numbers() -> None:
    def retention(**told: float) -> list[Verdict]:
        row = tables_of(MadeUp(0, **told))["options-comparison"].rows[1]
        return [cell.verdict for cell in row if isinstance(cell, Claim)]

    assert retention(**{"retention_option 3, index rebuilt locally": 5}) == [Verdict.CONFIRMED] * 4
    # Option 1 errs, and option 3 does not when it rebuilds.
    assert retention(**{"retention_option 1": 5}) == [Verdict.REFUTED, Verdict.REFUTED, Verdict.PARTLY, Verdict.REFUTED]
    moved = tables_of(MadeUp(1))["options-migration"].rows
    assert [cell[1].verdict for cell in moved] == [
        Verdict.CONFIRMED if cell.converts else Verdict.REFUTED for cell in migration.CELLS
    ] + [Verdict.CONFIRMED]


def test_every_case_is_someones() -> None:
    cases = STUDY.cases(1)
    assert len({str(case) for case in cases}) == len(cases)
    assert {case.part for case in cases} == {
        "retention",
        "rolling",
        "pipeline",
        "good things",
        "leader change",
        "migration",
        "sizes",
    }
