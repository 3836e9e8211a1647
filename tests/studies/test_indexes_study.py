"""The documents' figures by hand, and the whole study at a small size: its numbers agree with each other and with the files."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from studies.case import Measurements
from studies.chapter import Chapter, Claim, Mark, Plot, Table, Verdict
from studies.indexes import arithmetic, behaviour, density, replication, side_by_side, volume
from studies.indexes.side_by_side import MINUTE_INDEX, MINUTE_MAP, SECOND_INDEX, TIME_INDEX, WIDE
from studies.indexes.study import STUDY
from tests.studies.conftest import SCALES

SCALE = SCALES["which-index"]


@pytest.fixture(scope="module")
def found(measured_study: Callable[[str], Measurements]) -> Measurements:
    return measured_study(STUDY.NAME)


@pytest.fixture(scope="module")
def chapter(found: Measurements) -> Chapter:
    return STUDY.present(found)


class TestDocuments:
    """By hand, from the texts."""

    def test_granularity(self) -> None:
        assert arithmetic.entries_for_a_day(3_500, 86_400) == 3_628_800_000  # 3.38 GiB: "3.4 GB"
        assert arithmetic.entries_for_a_day(3_500, 1_440) == 60_480_000  # 57.7 MiB: "57 MB"

    def test_full_index(self) -> None:
        assert arithmetic.full_index(1 << 30, 4096) == 262_144 * 12 == 3 * (1 << 20)

    def test_wide(self) -> None:
        assert arithmetic.widened(16e9) == 32e9
        assert arithmetic.with_time_index(16e9) == 40e9
        assert arithmetic.log_bytes_behind(16e9, 4096) == 16e9 / 8 * 4096

    def test_handles(self) -> None:
        assert arithmetic.more_files(2, 1) == 0.5


class TestMeasurements:
    def test_cases_travel(self) -> None:
        cases = STUDY.cases(1)
        assert pickle.loads(pickle.dumps(cases)) == cases
        assert len({str(case) for case in cases}) == len(cases)

    def test_accepted_rows_are_the_files(self, found: Measurements) -> None:
        for case in found.cases(side_by_side.PART):
            real = found.value(side_by_side.PART, case, "log", ".timeindex bytes")
            assert found.value(side_by_side.PART, case, TIME_INDEX, "bytes") == real
            assert found.value(side_by_side.PART, case, WIDE, "bytes") == 2 * found.value(
                side_by_side.PART, case, "log", "offset index bytes"
            )

    def test_the_right_designs_make_no_mistake(self, found: Measurements) -> None:
        for case in found.cases(side_by_side.PART):
            for subject in {TIME_INDEX, WIDE, MINUTE_MAP} & set(found.subjects(side_by_side.PART, case)):
                assert found.value(side_by_side.PART, case, subject, "look-up: inexact answers") == 0
                assert found.value(side_by_side.PART, case, subject, "start: largest times wrong") == 0

    def test_the_map_is_reloaded_and_dropped(self, found: Measurements) -> None:
        for case in found.cases(side_by_side.PART):
            if MINUTE_MAP in found.subjects(side_by_side.PART, case):
                assert found.value(side_by_side.PART, case, MINUTE_MAP, "loaded as it was held") == 1
                assert found.value(side_by_side.PART, case, MINUTE_MAP, "entries dropped with the first segment") > 0

    def test_density_is_bounded_and_changes_no_answer(self, found: Measurements) -> None:
        for case in found.cases(density.PART):
            entries = []
            for interval in density.INTERVALS:
                subject = density.interval_name(interval)
                entries.append(found.value(density.PART, case, subject, "entries"))
                assert entries[-1] <= found.value(density.PART, case, subject, "log bytes") / interval + 8
                assert found.value(density.PART, case, subject, "inexact answers") == 0
            assert entries == sorted(entries, reverse=True)

    def test_granular_indexes_are_bounded_by_the_clock(self, found: Measurements) -> None:
        for rate in found.cases(volume.PART):
            for subject, most in ((SECOND_INDEX, 86_400), (MINUTE_INDEX, 1_440)):
                span_ms = found.value(volume.PART, rate, "log", "span")
                # A part of a day may hold one more than its share.
                bound = (most * span_ms / 86_400_000 + 2) * 12
                assert found.value(volume.PART, rate, subject, "bytes") <= bound

    def test_files_of_an_active_segment(self, found: Measurements) -> None:
        for rate in found.cases(volume.PART):
            assert found.value(volume.PART, rate, "files", "preallocated .index") == 10 * (1 << 20)
            assert found.value(volume.PART, rate, "files", "preallocated .timeindex") == 10 * (1 << 20) // 12 * 12
            assert found.value(volume.PART, rate, "files", "open .timeindex") in (0, 1)

    def test_truncation_and_starts(self, found: Measurements) -> None:
        for subject in found.subjects(behaviour.PART, behaviour.TRUNCATION):
            after, kept = (
                found.value(behaviour.PART, behaviour.TRUNCATION, subject, metric)
                for metric in ("entries after", "entries of records that stay")
            )
            assert after == kept
            assert found.value(behaviour.PART, behaviour.TRUNCATION, subject, "largest timestamp is right") == 1
        clean, crash = found.subjects(behaviour.PART, behaviour.STARTS)
        assert found.value(behaviour.PART, behaviour.STARTS, clean, "bytes walked") == 0
        assert found.value(behaviour.PART, behaviour.STARTS, crash, "bytes walked") > 0
        for subject in (clean, crash):
            segments = found.value(behaviour.PART, behaviour.STARTS, subject, "segments")
            assert found.value(behaviour.PART, behaviour.STARTS, subject, "largest timestamps known") == segments

    def test_the_text_of_option_3_leaves_last_entries_out(self, found: Measurements) -> None:
        assert found.value(replication.PART, "caught up", "replica", "segments without a last entry") > 0
        assert found.value(replication.PART, "caught up, closing entries sent", "replica", "identical") == 1


class TestChapter:
    def test_claims_that_are_arithmetic_hold_at_any_size(self, chapter: Chapter) -> None:
        for name in ("which-index-granularity", "which-index-density", "which-index-guarantees", "which-index-truncation"):
            table = next(part for part in chapter.parts if part.id == name)
            assert isinstance(table, Table)
            claims = [cell for row in table.rows for cell in row if isinstance(cell, Claim)]
            assert claims
            assert {claim.verdict for claim in claims} == {Verdict.CONFIRMED}

    def test_parts(self, chapter: Chapter) -> None:
        ids = [part.id for part in chapter.parts]
        assert len(set(ids)) == len(ids)
        plots = [part for part in chapter.parts if isinstance(part, Plot)]
        assert {plot.mark for plot in plots} == set(Mark)
        for plot in plots:
            for series in plot.series:
                assert 0 < len(series.xs) == len(series.ys) <= 400

    def test_the_staircase_is_the_largest_so_far(self, chapter: Chapter) -> None:
        plot = next(part for part in chapter.parts if part.id == "which-index-staircase")
        assert isinstance(plot, Plot)
        records, index = plot.series
        assert len(records.xs) + len(index.xs) <= 400
        largest = [max(records.ys[: int(offset) + 1]) for offset in records.xs]
        known = dict(zip(index.xs, index.ys, strict=True))
        # Never ahead of the records, and never behind by more than an interval: three batches of two.
        for offset, minutes in known.items():
            assert largest[max(0, int(offset) - 6)] <= minutes <= largest[int(offset)]

    def test_assumptions_name_every_seed(self, chapter: Chapter) -> None:
        assert sum("seed " in line for line in chapter.assumptions) == 10


def test_a_name_that_is_none(tmp_path: Path) -> None:
    case = next(case for case in STUDY.cases(SCALE) if case.part == volume.PART)
    with pytest.raises(Exception, match="no such rate"):
        list(STUDY.measure(type(case)(case.part, "another", case.parameters), tmp_path))
