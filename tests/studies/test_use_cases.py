"""The study of KIP-33's use cases, small, against loops over the generated messages that know no log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from studies.case import Case, Measurements
from studies.chapter import Claim, Plot, Table, Verdict
from studies.use_cases import STUDY, bootstrap, failover, lag, latency_metric, searching
from studies.use_cases.clusters import SKEW_MS, SKEWS, skew_of
from studies.workload import EPOCH_MS, generate
from tests.studies.conftest import SCALES

SCALE = SCALES["use-cases"]
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def measured(measured_study: Callable[[str], Measurements]) -> Measurements:
    return measured_study(STUDY.NAME)


def case_of(part: str, name: str) -> Case:
    (found,) = (case for case in STUDY.cases(SCALE) if (case.part, case.name) == (part, name))
    return found


def first_at(times: list[int], target: int) -> int:
    """Return the offset where a consumer starts."""
    return next((offset for offset, time in enumerate(times) if time >= target), len(times))


def test_no_answer_of_the_engine_is_unlike_brute_force(measured: Measurements) -> None:
    unlike = [one for one in measured if one.metric.startswith("unlike brute force")]
    assert len(unlike) > 50
    assert {one.value for one in unlike} == {0.0}


@pytest.mark.parametrize("skew", [skew.name for skew in SKEWS])
def test_searches(measured: Measurements, skew: str) -> None:
    case = case_of(searching.SEARCH, skew)
    messages = generate(searching.workload(case))
    created, arrived = messages.create_ms.tolist(), messages.arrival_ms.tolist()
    appended = [time + skew_of(skew).broker_ms for time in arrived]
    chosen = [int(place) for place in np.linspace(0, len(created) - 1, min(200, len(created)))]
    looked_for = {
        searching.BY_CREATE_TIME: (created, 0),
        searching.BY_APPEND_TIME: (appended, 0),
        searching.BY_APPEND_TIME_LESS_SKEW: (appended, SKEW_MS),
    }
    for subject, (times, less_ms) in looked_for.items():
        missed = for_nothing = 0
        for place in chosen:
            start = first_at(times, created[place] - less_ms)
            missed += sum(time >= created[place] for time in created[:start])
            for_nothing += sum(time < created[place] for time in created[start:])
        assert measured.value(case.part, skew, subject, "missed") == missed
        assert measured.value(case.part, skew, subject, "read for nothing") == for_nothing
    for topic in ("CreateTime", "LogAppendTime"):
        for metric in ("later than T and not behind the offset", "before the offset and not below T"):
            assert measured.value(case.part, skew, f"guarantees, {topic}", metric) == 0


def test_one_create_time(measured: Measurements) -> None:
    part, case = searching.ONE_CREATE_TIME, "true clocks"
    arrived = generate(searching.workload(case_of(part, case))).arrival_ms.tolist()
    first = len(arrived) // 10
    assert measured.subjects(part, case)
    for subject in measured.subjects(part, case):
        second = arrived.index(arrived[first] + int(subject))
        # From m1 at the latest; what came before it may be late enough as well.
        assert measured.value(part, case, subject, "CreateTime index, CreateTime") >= second - first + 1
        assert measured.value(part, case, subject, "LogAppendTime index, CreateTime") >= second - first + 1
        assert measured.value(part, case, subject, "LogAppendTime index, append time") == second + 1 - arrived.index(
            arrived[second]
        )


@pytest.mark.parametrize("order", bootstrap.ORDERS)
def test_bootstrap(measured: Measurements, order: str) -> None:
    case = case_of(bootstrap.BOOTSTRAP, order)
    rows = bootstrap.dump(case)
    after = generate(bootstrap.live(case))
    for subject in bootstrap.SUBJECTS:
        dumped = [
            (created, arrival)
            for created, arrival in zip(rows.create_ms.tolist(), rows.arrival_ms.tolist(), strict=True)
            if subject != bootstrap.FILTERED or created >= EPOCH_MS - 3 * DAY_MS
        ]
        later = dumped + list(zip(after.create_ms.tolist(), after.arrival_ms.tolist(), strict=True))
        for moment, now_ms, log in (("at once", EPOCH_MS, dumped), ("a day later", EPOCH_MS + DAY_MS, later)):
            since = now_ms - 3 * DAY_MS
            start = first_at([created if subject == "CreateTime" else arrival for created, arrival in log], since)
            missed = sum(created >= since for created, _ in log[:start])
            for_nothing = sum(created < since for created, _ in log[start:])
            assert measured.value(case.part, order, subject, f"missed {moment}") == missed
            assert measured.value(case.part, order, subject, f"read for nothing {moment}") == for_nothing


@pytest.mark.parametrize("name", ["true clocks", "producers ahead", "broker behind", failover.COPIED])
def test_failover(measured: Measurements, name: str) -> None:
    case = case_of(failover.FAILOVER, name)
    first, second = failover.both_clusters(case)
    ahead_ms = 0 if name == failover.COPIED else skew_of(name).broker_ms
    made = sorted(first.made_ms.tolist())
    crashes = [made[int(place)] for place in np.linspace(0.3 * len(made), 0.95 * len(made), 20)]
    for topic in ("CreateTime", "LogAppendTime"):
        totals = dict.fromkeys(failover.STRATEGIES, (0, 0))
        for crash in crashes:
            read = {
                number
                for number, arrival in zip(first.numbers.tolist(), first.arrival_ms.tolist(), strict=True)
                if arrival <= crash
            }
            last = len(read) - 1
            latencies = (first.arrival_ms - first.create_ms).tolist()
            created = int(first.create_ms[last])
            targets = {
                failover.CRASH_TIME: crash,
                failover.OWN_CREATE_TIME: created,
                failover.APPEND_TIME: int(first.arrival_ms[last]),
                failover.LESS_SEEN: created - max(latencies[: last + 1]),
                failover.LESS_LARGEST: created - max(latencies),
            }
            there = sum(arrival <= crash for arrival in second.arrival_ms.tolist())
            times = (
                second.create_ms.tolist()
                if topic == "CreateTime"
                else [arrival + ahead_ms for arrival in second.arrival_ms.tolist()]
            )
            numbers = second.numbers.tolist()
            for strategy, target in targets.items():
                start = first_at(times[:there], target)
                missed, twice = totals[strategy]
                missed += sum(number not in read for number in numbers[:start])
                totals[strategy] = (missed, twice + sum(number in read for number in numbers[start:]))
        for strategy, (missed, twice) in totals.items():
            if (topic, strategy) == ("CreateTime", failover.APPEND_TIME):
                assert measured.get(case.part, name, f"{topic}: {strategy}", "missed") is None
                continue
            assert measured.value(case.part, name, f"{topic}: {strategy}", "missed") == missed
            assert measured.value(case.part, name, f"{topic}: {strategy}", "read twice") == twice


def test_the_documents_case_by_hand(measured: Measurements) -> None:
    meant, written = failover.READINGS
    part = failover.DOCUMENTS_CASE

    def missed(subject: str, reading: str) -> bool:
        return measured.value(part, "true clocks", subject, f"m1 missed, {reading}") > 0

    for topic in ("CreateTime", "LogAppendTime"):
        # m1 is at 1 s (LogAppendTime) or 0 s (CreateTime) before m2 at 11 s or 10 s: only 10 s - 20 s lies before it.
        assert missed(f"{topic}: CT2", meant)
        assert missed(f"{topic}: {failover.BY_LATENCY_OF_1}", meant)
        assert missed(f"{topic}: {failover.BY_LATENCY_SEEN_ON_2}", meant)
        assert not missed(f"{topic}: {failover.BY_LATENCY_OF_2}", meant)
        # m2 comes before m1 there.
        assert not any(missed(subject, written) for subject in measured.subjects(part))


def test_a_consumer_that_catches_up() -> None:
    arrivals = np.arange(0, 1_000_000, 1_000, dtype=np.int64)
    consumer = lag.Consumer(arrivals)
    # 250 messages behind at 500 s, gaining 3 a second: there after 83 s.
    assert consumer.begin_ms == 500_000
    assert consumer.end_ms - consumer.begin_ms == pytest.approx(250 / 3 * 1000, rel=0.02)
    assert consumer.position(consumer.begin_ms) == 250


def test_lag(measured: Measurements) -> None:
    part = lag.LAG
    for case in ("true clocks", "producers ahead"):
        assert measured.value(part, case, f"LogAppendTime: {lag.NOW}", "lag, largest error") == 0
        assert measured.value(part, case, f"CreateTime: {lag.NOW}", "lag, largest error") > 0
    assert measured.value(part, "broker behind", f"LogAppendTime: {lag.NOW}", "lag, mean error") == SKEW_MS


@pytest.mark.parametrize("name", latency_metric.CASES)
def test_latency_metric(measured: Measurements, name: str) -> None:
    case = case_of(latency_metric.LATENCY_METRIC, name)
    messages = generate(latency_metric.workload(case))
    half = len(messages) // 2
    is_set_back = name.startswith(latency_metric.SET_BACK)
    last = 0
    apart = []
    for place, (created, arrival) in enumerate(zip(messages.create_ms.tolist(), messages.arrival_ms.tolist(), strict=True)):
        ahead = (-SKEW_MS if place >= half else 0) if is_set_back else skew_of(name).broker_ms
        now = arrival + ahead
        last = now if name == latency_metric.SET_BACK_AS_KAFKA else max(last, now)
        apart.append((last - created, now - created))
    assert measured.value(case.part, name, "both", "messages that differ") == sum(one != other for one, other in apart)
    for subject, values in zip((latency_metric.BY_APPEND_TIME, latency_metric.BY_CLOCK), zip(*apart, strict=True), strict=True):
        assert measured.value(case.part, name, subject, "max") == max(values)
        assert measured.value(case.part, name, subject, "below 0") == sum(value < 0 for value in values)


def test_the_chapter_has_the_kips_table(measured: Measurements) -> None:
    chapter = STUDY.present(measured)
    assert len({part.id for part in chapter.parts}) == len(chapter.parts)
    table = chapter.parts[0]
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["1", "1", "1", "2", "3", "3", "3", "4", "5", ""]
    claims = [cell for row in table.rows for cell in row if isinstance(cell, Claim)]
    assert len(claims) == 20
    assert {claim.verdict for claim in claims} >= {Verdict.CONFIRMED, Verdict.PARTLY}
    assert all(claim.claimed and claim.measured for claim in claims)
    plots = [part for part in chapter.parts if isinstance(part, Plot)]
    assert all(len(series.xs) == len(series.ys) > 0 for plot in plots for series in plot.series)
    assert chapter.assumptions


def test_cases_measure_the_same_anywhere(measured: Measurements, tmp_path: Path) -> None:
    case = case_of(failover.FAILOVER, "producers behind")
    again = list(STUDY.measure(case, tmp_path))
    assert again == [one for one in measured if (one.part, one.case) == (case.part, case.name)]
