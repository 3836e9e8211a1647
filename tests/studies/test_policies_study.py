"""The study as a whole: its cases, KIP-32's tables, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from studies.case import Measurement, Measurements
from studies.chapter import Chapter, Claim, Plot, Table, Verdict
from studies.policies import preferences
from studies.policies.preferences import CT, EITHER, LAT, RETENTION_CRITERIA, preferred, verdict
from studies.policies.rolling_rules import RollingRule
from studies.policies.scenarios import INTERVAL_MS, MADE_DAYS, SCENARIOS, scenario
from studies.policies.study import STUDY
from studies.workload import DAY_MS, EPOCH_MS
from tests.studies.conftest import SCALES

FEW = SCALES["policies"]


@pytest.fixture(scope="module")
def chapter(measured_study: Callable[[str], Measurements]) -> Chapter:
    return STUDY.present(measured_study(STUDY.NAME))


def table(chapter: Chapter, name: str) -> Table:
    return next(part for part in chapter.parts if isinstance(part, Table) and part.id == name)


def test_cases_are_known_by_their_names() -> None:
    for scale in (FEW, 1.0):
        cases = [str(case) for case in STUDY.cases(scale)]
        assert len(cases) == len(set(cases))
    assert {case.name for case in STUDY.cases(1) if case.part == "retention"} == {one.name for one in SCENARIOS}


def test_both_tables_of_kip_32_are_there_cell_by_cell(chapter: Chapter) -> None:
    retention = table(chapter, "policies-retention-preference")
    rolling = table(chapter, "policies-rolling-preference")
    # Judged once each, by the document's own criterion; the others are shown.
    judged = [[cell.claimed for cell in row if isinstance(cell, Claim)] for row in (*retention.rows, *rolling.rows)]
    assert judged == [[EITHER, CT, LAT, LAT], [], [], [], [EITHER, LAT, LAT, LAT], [], [], [], [], []]
    assert rolling.rows[0][:2] == (RollingRule.CLOCK_AND_FIRST_MESSAGE.value, "1: messages alone in their segment")
    assert (len(retention.rows), len(rolling.rows)) == (4, 6)


def test_what_few_messages_show_already(chapter: Chapter) -> None:
    first = table(chapter, "policies-retention-preference").rows[0]
    verdicts = [cell.verdict for cell in first if isinstance(cell, Claim)]
    assert verdicts == [Verdict.CONFIRMED, Verdict.CONFIRMED, Verdict.REFUTED, Verdict.CONFIRMED]
    assert {row[-1] for row in table(chapter, "policies-rolling-engine").rows} == {"the same, on a follower too"}
    for name in ("policies-reassignment", "policies-migration"):
        claims = [cell for row in table(chapter, name).rows for cell in row if isinstance(cell, Claim)]
        assert claims
        assert {claim.verdict for claim in claims} == {Verdict.CONFIRMED}


def test_the_chapter_is_complete(chapter: Chapter) -> None:
    ids = [part.id for part in chapter.parts]
    assert len(ids) == len(set(ids))
    assert sum(isinstance(part, Plot) for part in chapter.parts) == 4
    for part in chapter.parts:
        if isinstance(part, Table):
            assert part.rows, part.id
            assert part.source
        else:
            assert all(len(one.xs) == len(one.ys) for one in part.series)
    assert any("seed 32" in one for one in chapter.assumptions)
    assert len(chapter.findings) >= 8


def test_sentences_have_their_measurements(chapter: Chapter) -> None:
    said = [row[-1] for row in table(chapter, "policies-arguments").rows]
    assert all(isinstance(claim, Claim) for claim in said)
    verdicts = {claim.claimed: claim.verdict for claim in said if isinstance(claim, Claim)}
    assert verdicts["monotonically increasing"] is Verdict.CONFIRMED
    assert [verdict for claimed, verdict in verdicts.items() if "Public Interfaces" in claimed] == [Verdict.REFUTED]


@pytest.mark.parametrize("name", [one.name for one in SCENARIOS])
def test_a_scale_changes_no_duration(name: str) -> None:
    chosen = scenario(name)
    for scale in (0.1, 1.0):
        first, second = chosen.messages(scale)
        assert len(first) == len(second) == round(MADE_DAYS * DAY_MS / INTERVAL_MS * scale)
        assert int(first.made_ms.max()) - EPOCH_MS == pytest.approx(MADE_DAYS * DAY_MS, rel=0.25)
        assert (first.arrival_ms >= first.made_ms).all()
        by_number = [one.arrival_ms[one.numbers.argsort()] for one in (first, second)]
        assert (by_number[1] > by_number[0]).all()
        assert chosen.messages(scale)[0].create_ms.tolist() == first.create_ms.tolist()


@pytest.mark.parametrize(
    ("create", "append", "expected"),
    [(0, 0, EITHER), (0, 100, CT), (100, 0, LAT), (100, 95, EITHER), (100, 85, LAT), (8, 0, EITHER), (0, 11, CT)],
)
def test_preferred(create: float, append: float, expected: str) -> None:
    assert preferred(create, append, tie=10) == expected


def test_verdict() -> None:
    assert verdict(LAT, LAT) is verdict(EITHER, EITHER) is Verdict.CONFIRMED
    assert verdict(LAT, CT) is verdict(EITHER, CT) is Verdict.REFUTED
    assert verdict(LAT, EITHER) is Verdict.PARTLY


def test_figures_are_means_over_a_patterns_scenarios() -> None:
    values = {"producers ahead": (2.0, 4.0), "one from the past": (6.0, 8.0)}
    rows = [
        Measurement("retention", case, f"{kind}, cluster {cluster}", "off_ms", value + cluster)
        for case, pair in values.items()
        for kind, value in zip(("CreateTime", "LogAppendTime"), pair, strict=True)
        for cluster in (1, 2)
    ]
    assert preferences.figures(Measurements(rows), RETENTION_CRITERIA[0], "robustness") == (5.5, 7.5)
