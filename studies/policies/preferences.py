"""The timestamp that the measurements prefer, and the verdicts on KIP-32's two preference tables.

A criterion is a number that should be small. The type with the smaller number is preferred; if both are nearly equal, neither is.
Robustness is the mean over the scenarios with wrong producer clocks. Each cell of KIP-32 gets one verdict, by the problem that
KIP-32 itself names for that table. The other criteria are ours. They have no verdict, and show how far the result depends on the
criterion.

| table | criterion | from | nearly equal |
|---|---|---|---|
| retention | 1: mean error per message, too early plus too long, by true age | KIP-32's | 10 %, or half a check apart |
| | 2: difference of the age at deletion from retention.ms, in either direction, without allowance | ours | the same |
| | 3: how long a message is deleted on one cluster only | ours | the same |
| | 4: difference of the time on a cluster from retention.ms, as if age began with the arrival | ours | the same |
| rolling | 1: messages that are alone in their segment | KIP-32's, by its rule | 0.5 % of all messages apart |
| | 2: the largest difference of a segment's active time from segment.ms | ours | 10 %, or one check apart |

About retention, KIP-32 objects that latency shifts the time of deletion and that a future timestamp prevents it (criterion 3 is
its remark on pattern 2 only). About rolling by the clock minus the first timestamp, it objects to segments of one message.
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
"""KIP-32's claims for patterns 1 to 3 and robustness."""

Figure = Callable[[Measurements, str, str], float]
"""Returns a number that should be small, for the measurements, a scenario's name and a timestamp type."""


class Criterion(NamedTuple):
    """A criterion for the preference."""

    name: str
    figure: Figure
    tie: float
    """Figures that differ by no more than this are nearly equal, as are those within 10 %."""
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
    """Return which of two figures is preferred: the smaller one, unless they are nearly equal."""
    if abs(create - append) <= max(tie, 0.1 * max(create, append)):
        return EITHER
    return CT if create < append else LAT


def verdict(claimed: str, measured: str) -> Verdict:
    """Return the verdict of a measured preference on a claimed one. If there is no difference, the claim holds in part."""
    if claimed == measured:
        return Verdict.CONFIRMED
    return Verdict.PARTLY if measured == EITHER else Verdict.REFUTED


def answers(found: Measurements, criterion: Criterion) -> tuple[str, ...]:
    """Return the preference by a criterion for each column, with its figures."""
    told = []
    for pattern in PATTERNS:
        create, append = figures(found, criterion, pattern)
        told.append(f"{preferred(create, append, criterion.tie)} (CT {criterion.shown(create)}, LAT {criterion.shown(append)})")
    return tuple(told)


def claims(found: Measurements, criterion: Criterion, claimed: tuple[str, ...]) -> tuple[Claim, ...]:
    """Return the row with verdicts of a preference table: KIP-32's four cells, each with its measured result."""
    return tuple(
        Claim(claim, answer, verdict(claim, answer.split(" (")[0]))
        for claim, answer in zip(claimed, answers(found, criterion), strict=True)
    )
