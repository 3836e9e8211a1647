"""The results as a chapter: KIP-32's two preference tables cell by cell, and the measurements behind them."""

from __future__ import annotations

from collections.abc import Iterable

from studies.case import Measurements
from studies.chapter import Cell, Chapter, Claim, Table
from studies.policies import preferences, retention_tables, rolling_tables, sweep_tables
from studies.policies.argument_table import arguments
from studies.policies.measuring import ROLLING, measured
from studies.policies.plots import plots
from studies.policies.preferences import RETENTION_CRITERIA, rolling_criteria
from studies.policies.rolling_rules import RollingRule
from studies.policies.scenarios import (
    MADE_DAYS,
    PATTERNS,
    QUIET,
    settings,
)
from studies.workload import DAY_MS

QUESTION = (
    "Should retention and rolling by time go by when a message was made (CreateTime) or by when the broker got it "
    "(LogAppendTime)? KIP-32 answers for three patterns of latency and for wrong clocks, in two tables of preferences; KIP-33 "
    "gives two different rules for rolling. The messages of each scenario go through the real engine, on two clusters in a "
    "pipeline, and every deletion and every roll is compared with what was asked for."
)
TIES = (
    "two figures are as good as equal where they are no more than 10 % apart, or no more than: 15 minutes (retention), "
    "0.5 % of the messages (rolling, 1), 30 minutes (rolling, 2)",
    "robustness is the mean over the scenarios with wrong producers' clocks (ahead, behind, one from the future or the past)",
)


def present(found: Measurements) -> Chapter:
    """Return the chapter with the results of all cases."""
    pictures = plots(found)
    retention, rolling = _retention_preferences(found), _rolling_preferences(found)
    return Chapter(
        "policies",
        "Which timestamp, part 2: retention and rolling",
        QUESTION,
        _answer(found, retention, rolling),
        (
            retention,
            retention_tables.off(found),
            pictures["policies-off"],
            retention_tables.divergence(found),
            pictures["policies-divergence"],
            retention_tables.pinned(found),
            pictures["policies-disk"],
            retention_tables.broker_clocks(found),
            sweep_tables.late_alike(found),
            sweep_tables.half_late(found),
            retention_tables.file_times(found),
            retention_tables.reassignment(found),
            retention_tables.migration(found),
            rolling,
            rolling_tables.one_message(found),
            pictures["policies-one-message"],
            rolling_tables.active(found),
            rolling_tables.spans(found),
            rolling_tables.engine(found),
            rolling_tables.copied(found),
            sweep_tables.rolling(found),
            rolling_tables.combined(found),
            arguments(found),
        ),
        (*settings(), *_workloads(found), *ASSUMED),
        tuple(_findings(found)),
    )


ASSUMED = (
    "the mirror between the clusters has a latency of its own, of the same pattern; the clock of cluster 2 is right",
    "file times and the rules that the engine does not have are played back over arrays, with the engine's own retention rule; "
    "the accepted rule is played back too, and compared with the engine's segments",
    "size and the log start delete nothing here; nothing is compacted; there are no jitter and no full indexes",
)


def _workloads(found: Measurements) -> Iterable[str]:
    for one in measured(found, ROLLING):
        messages = found.value(ROLLING, one.name, RollingRule.CREATE_TIME_OF_SEGMENT.value, "messages")
        scale = messages * one.interval_ms / (MADE_DAYS * DAY_MS)
        yield one.describe(scale if one is not QUIET else 1.0)


def _retention_preferences(found: Measurements) -> Table:
    own, *others = RETENTION_CRITERIA
    return Table(
        "policies-retention-preference",
        "Which timestamp for retention",
        ("criterion", *PATTERNS),
        (
            (own.name, *preferences.claims(found, own, preferences.CLAIMED_RETENTION)),
            *((one.name, *preferences.answers(found, one)) for one in others),
        ),
        "KIP-32, comparison table of log retention",
        ("criterion 1 is KIP-32's and decides; the others are ours, and show how far the answer depends on it", *TIES),
        (
            "criterion 1 takes retention.ms as a promise about a message's age; criterion 4 as one about its time on the "
            "cluster, which is what LogAppendTime measures by definition",
        ),
    )


def _rolling_preferences(found: Measurements) -> Table:
    own_rule = RollingRule.CLOCK_AND_FIRST_MESSAGE
    own, other = rolling_criteria(own_rule)
    rows: list[tuple[Cell, ...]] = [
        (own_rule.value, own.name, *preferences.claims(found, own, preferences.CLAIMED_ROLLING)),
        (own_rule.value, other.name, *preferences.answers(found, other)),
    ]
    for rule in (RollingRule.FIRST_MESSAGE, RollingRule.LARGEST_TIMESTAMP):
        rows += [(rule.value, one.name, *preferences.answers(found, one)) for one in rolling_criteria(rule)]
    return Table(
        "policies-rolling-preference",
        "Which timestamp for rolling",
        ("rule", "criterion", *PATTERNS),
        tuple(rows),
        "KIP-32, comparison table of time based log rolling",
        ("the first row is KIP-32's rule and its complaint, and decides; the other rules and criterion 2 are ours", *TIES),
        (
            "KIP-32 had the clock against the first timestamp in mind: a message whose CreateTime has reached the criterion when "
            "it comes. The accepted rule compares timestamps with each other, so that the same latency on both cancels out",
        ),
    )


def _cells(row: tuple[Cell, ...]) -> str:
    """Return a preference table's row in words."""
    claims = [cell for cell in row if isinstance(cell, Claim)]
    said = [f"{pattern}: {claim.measured}, {claim.verdict.value}" for pattern, claim in zip(PATTERNS, claims, strict=True)]
    return "; ".join(said)


def _answer(found: Measurements, retention: Table, rolling: Table) -> str:
    accepted = preferences.answers(found, rolling_criteria(RollingRule.FIRST_MESSAGE)[0])
    said = "; ".join(f"{pattern}: {answer}" for pattern, answer in zip(PATTERNS, accepted, strict=True))
    return (
        f"Retention: {_cells(retention.rows[0])}. Rolling, under the rule that KIP-32 had in mind: {_cells(rolling.rows[0])}; "
        f"under the rule that was accepted, {said}."
    )


def _findings(found: Measurements) -> Iterable[str]:
    yield from retention_tables.findings(found)
    yield from rolling_tables.findings(found)
