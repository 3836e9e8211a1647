"""Which timestamp the measurements prefer, and what that says of KIP-32's two preference tables.

A criterion is a number that should be small; the type with the smaller one is preferred, and neither where they are as good as
equal. Robustness is the mean over the scenarios with wrong producers' clocks. A cell of KIP-32's is judged once, by what KIP-32
itself complains of in that table; the other criteria are ours. They stand beside it without a verdict, to show how far the answer
depends on it.

| table | criterion | whose | as good as equal |
|---|---|---|---|
| retention | 1: too early and too long, a message, by true age (both clusters) | KIP-32's | 10 %, or half a check apart |
| | 2: how far age at deletion is from retention.ms, either way, without allowance | ours | the same |
| | 3: how long a message is deleted on one cluster only | ours | the same |
| | 4: how far the time on a cluster is from retention.ms: as if age began with the arrival | ours | the same |
| rolling | 1: messages that are alone in their segment | KIP-32's, by its rule | 0.5 % of all messages apart |
| | 2: how far a segment's active time is from segment.ms, at worst | ours | 10 %, or one check apart |

KIP-32's complaints are, of retention, that latency moves the time at which data goes, and that a future time keeps it (criterion
3 is its remark on pattern 2 alone); of rolling, under the clock against the first timestamp, segments of one message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from studies.case import Measurements
from studies.chapter import Claim, Verdict
from studies.policies.measuring import BOTH, RETENTION, ROLLING, measured, on_cluster, rule_subject
from studies.policies.rolling_rules import RollingRule
from studies.policies.scenarios import CHECK_MS, PATTERNS
from studies.workload import HOUR_MS
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME

CT, LAT, EITHER = "CT", "LAT", "CT or LAT"

CLAIMED_RETENTION = (EITHER, CT, LAT, LAT)
CLAIMED_ROLLING = (EITHER, LAT, LAT, LAT)
"""KIP-32's cells, for patterns 1 to 3 and robustness."""

Figure = Callable[[Measurements, str, str], float]
"""Of measurements, a scenario's name and a timestamp type: a number that should be small."""


class Criterion(NamedTuple):
    """A way to decide."""

    name: str
    figure: Figure
    tie: float
    """Figures that are no further apart are as good as equal; so are those within 10 %."""
    shown: Callable[[float], str]


def _hours(value: float) -> str:
    return f"{value / HOUR_MS:.1f} h"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _mean_of_clusters(metric: str) -> Figure:
    def figure(found: Measurements, case: str, kind: str) -> float:
        return sum(found.value(RETENTION, case, on_cluster(kind, cluster), metric) for cluster in (1, 2)) / 2

    return figure


def _apart(found: Measurements, case: str, kind: str) -> float:
    return found.value(RETENTION, case, f"{kind}, {BOTH}", "share_ms")


RETENTION_CRITERIA = (
    Criterion("1: too early and too long, by true age", _mean_of_clusters("off_ms"), CHECK_MS / 2, _hours),
    Criterion("2: age at deletion off retention.ms", _mean_of_clusters("age_off_ms"), CHECK_MS / 2, _hours),
    Criterion("3: deleted on one cluster only", _apart, CHECK_MS / 2, _hours),
    Criterion("4: time on the cluster off retention.ms", _mean_of_clusters("stay_off_ms"), CHECK_MS / 2, _hours),
)


def rolling_criteria(rule: RollingRule) -> tuple[Criterion, Criterion]:
    """Return both criteria for a rolling rule."""

    def alone(found: Measurements, case: str, kind: str) -> float:
        subject = rule_subject(rule, kind)
        return found.value(ROLLING, case, subject, "one_message") / found.value(ROLLING, case, subject, "messages")

    def worst(found: Measurements, case: str, kind: str) -> float:
        return found.value(ROLLING, case, rule_subject(rule, kind), "worst_off_ms")

    return (
        Criterion("1: messages alone in their segment", alone, 0.005, _percent),
        Criterion("2: active time off segment.ms, at worst", worst, CHECK_MS, _hours),
    )


def figures(found: Measurements, criterion: Criterion, pattern: str) -> tuple[float, float]:
    """Return the criterion's figures of a pattern, with CreateTime and with LogAppendTime."""
    cases = [one.name for one in measured(found, RETENTION) if one.pattern == pattern]
    create, append = (
        sum(criterion.figure(found, case, kind) for case in cases) / len(cases) for kind in (CREATE_TIME, LOG_APPEND_TIME)
    )
    return create, append


def preferred(create: float, append: float, tie: float) -> str:
    """Return which of two figures is preferred: the smaller one, unless they are as good as equal."""
    if abs(create - append) <= max(tie, 0.1 * max(create, append)):
        return EITHER
    return CT if create < append else LAT


def verdict(claimed: str, measured: str) -> Verdict:
    """Return what a measured preference says of a claimed one. Where there is no difference, a claimed one is half right."""
    if claimed == measured:
        return Verdict.CONFIRMED
    return Verdict.PARTLY if measured == EITHER else Verdict.REFUTED


def answers(found: Measurements, criterion: Criterion) -> tuple[str, ...]:
    """Return what a criterion prefers for each column, with its figures."""
    told = []
    for pattern in PATTERNS:
        create, append = figures(found, criterion, pattern)
        told.append(f"{preferred(create, append, criterion.tie)} (CT {criterion.shown(create)}, LAT {criterion.shown(append)})")
    return tuple(told)


def claims(found: Measurements, criterion: Criterion, claimed: tuple[str, ...]) -> tuple[Claim, ...]:
    """Return the row of a preference table that is judged: KIP-32's four cells, each with what was measured."""
    return tuple(
        Claim(claim, answer, verdict(claim, answer.split(" (")[0]))
        for claim, answer in zip(claimed, answers(found, criterion), strict=True)
    )
