"""Retention of the study's scenarios: what the real engine did, against a model of plain lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.case import Measurements
from studies.policies import broker, by_hand, measuring, moving
from studies.policies.by_hand import RetentionRule
from studies.policies.lateness import apart, divergence, lateness, steps
from studies.policies.rolling_rules import RollingRule
from studies.policies.scenarios import AFTER_MAX_MS, CHECK_MS, END_MS, FAR_OFF_MS, RETENTION_MS, SEGMENT_MS, scenario
from studies.workload import EPOCH_MS, HOUR_MS, Int64s, Messages
from tests.studies import policies_model as model
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME

SCALE = 0.04
CHECKS = list(range(EPOCH_MS + CHECK_MS, END_MS + 1, CHECK_MS))
RULES = {
    RollingRule.CREATE_TIME_OF_SEGMENT: "created",
    RollingRule.FIRST_MESSAGE: "first",
    RollingRule.LARGEST_TIMESTAMP: "largest",
    RollingRule.CLOCK_AND_FIRST_MESSAGE: "clock",
}
BY = {RetentionRule.LARGEST: "largest", RetentionRule.LAST: "last", RetentionRule.FILE_TIME: "file"}


def stamps_of(messages: Messages, kind: str, ahead_ms: int = 0) -> list[int]:
    return messages.create_ms.tolist() if kind == CREATE_TIME else [one + ahead_ms for one in messages.arrival_ms.tolist()]


@pytest.mark.parametrize("name", ["large latency", "mixed latency", "producers ahead", "one from the future", "broker ahead"])
@pytest.mark.parametrize("kind", [CREATE_TIME, LOG_APPEND_TIME])
def test_every_message_goes_when_the_model_says(name: str, kind: str, tmp_path: Path) -> None:
    chosen = scenario(name)
    messages, _ = chosen.messages(SCALE)
    ahead_ms = chosen.broker.offset_ms
    kept = broker.run(tmp_path, messages, kind, clock_error=chosen.broker)
    expected = model.keep(
        messages.arrival_ms.tolist(), stamps_of(messages, kind, ahead_ms), CHECKS, SEGMENT_MS, RETENTION_MS, ahead_ms=ahead_ms
    )
    assert kept.gone_ms.tolist() == expected.gone
    assert kept.starts.tolist() == expected.bases
    assert kept.stamps_ms.tolist() == stamps_of(messages, kind, ahead_ms)
    batch = next(size // count for (_, size), count in zip(kept.checks, expected.sizes, strict=True) if count)
    assert [size for _, size in kept.checks] == [count * batch for count in expected.sizes]


def test_a_clock_that_jumps(tmp_path: Path) -> None:
    """Ahead for an hour: what is old enough by that clock goes at once, and append times stay where the clock was."""
    chosen = scenario("broker jumps 12 hours")
    messages, _ = chosen.messages(SCALE)
    kept = broker.run(tmp_path, messages, LOG_APPEND_TIME, clock_error=chosen.broker)
    latest = 0
    for stamp, arrival in zip(kept.stamps_ms.tolist(), messages.arrival_ms.tolist(), strict=True):
        latest = max(latest, arrival + chosen.broker.at(arrival))
        assert stamp == latest
    jumped = int((kept.gone_ms == chosen.broker.first_ms).sum())
    early = [gone - made < RETENTION_MS for gone, made in zip(kept.gone_ms.tolist(), messages.made_ms.tolist(), strict=True)]
    assert jumped > 0
    assert sum(early) >= jumped - 1


@pytest.mark.parametrize("name", ["producers ahead", "one from the future"])
def test_the_sanity_check_refuses_what_is_too_far_ahead(name: str, tmp_path: Path) -> None:
    messages, _ = scenario(name).messages(SCALE)
    kept = broker.run(tmp_path, messages, CREATE_TIME, properties={"message.timestamp.after.max.ms": AFTER_MAX_MS})
    ahead = messages.create_ms - messages.arrival_ms > AFTER_MAX_MS
    assert kept.refused.tolist() == messages.numbers[ahead].tolist()
    assert kept.messages.numbers.tolist() == messages.numbers[~ahead].tolist()
    assert (kept.gone_ms < broker.NEVER).all()


def test_how_long_the_future_pins(tmp_path: Path) -> None:
    messages, _ = scenario("one from the future").messages(SCALE)
    kept = broker.run(tmp_path, messages, CREATE_TIME)
    latest = int(messages.create_ms.max())
    assert latest > EPOCH_MS + FAR_OFF_MS
    assert (kept.keeper_ms, kept.goes_ms) == (latest, latest + RETENTION_MS + 1)


@pytest.mark.parametrize("retention", list(RetentionRule))
@pytest.mark.parametrize("rolling", list(RollingRule))
def test_played_back_by_hand(rolling: RollingRule, retention: RetentionRule) -> None:
    messages, _ = scenario("mixed latency").messages(SCALE)
    copied_ms = EPOCH_MS + 80 * HOUR_MS
    for copied in (None, copied_ms):
        gone = by_hand.play(rolling, retention, messages.create_ms, messages.arrival_ms, copied_ms=copied)
        expected = model.keep(
            messages.arrival_ms.tolist(),
            messages.create_ms.tolist(),
            CHECKS,
            SEGMENT_MS,
            RETENTION_MS,
            rule=RULES[rolling],
            by=BY[retention],
            copied_ms=copied,
        )
        assert gone.tolist() == expected.gone


def test_both_rules_together() -> None:
    found = Measurements(measuring.measure_combined(scenario("mixed latency"), SCALE))
    messages, _ = scenario("mixed latency").messages(SCALE)
    due = [made + RETENTION_MS for made in messages.made_ms.tolist()]
    for rule, kind in measuring.RULES_AND_TYPES:
        for retention in RetentionRule:
            gone = model.keep(
                messages.arrival_ms.tolist(),
                stamps_of(messages, kind),
                CHECKS,
                SEGMENT_MS,
                RETENTION_MS,
                rule=RULES[rule],
                by=BY[retention],
            ).gone
            late = [min(went, END_MS) - expected for went, expected in zip(gone, due, strict=True)]
            subject = measuring.combined_subject(rule, kind, retention)
            assert found.value("combined", "mixed latency", subject, "latest after due") == max(late)
            assert found.value("combined", "mixed latency", subject, "early") == sum(one < 0 for one in late)


def test_a_scenarios_measurements(tmp_path: Path) -> None:
    """The study's rows, from the model's deletions, message by message."""
    chosen = scenario("large latency")
    found = Measurements(measuring.measure_retention(chosen, SCALE, tmp_path))
    first, second = chosen.messages(SCALE)
    for kind in broker.TYPES:
        went: list[dict[int, tuple[int, int]]] = []
        for cluster, messages in ((1, first), (2, second)):
            expected = model.keep(messages.arrival_ms.tolist(), stamps_of(messages, kind), CHECKS, SEGMENT_MS, RETENTION_MS)
            too_long = [
                gone - made - RETENTION_MS - SEGMENT_MS - CHECK_MS
                for gone, made in zip(expected.gone, messages.made_ms.tolist(), strict=True)
            ]
            some = [one for one in too_long if one > 0]
            subject = measuring.on_cluster(kind, cluster)
            assert found.value("retention", chosen.name, subject, "long") == len(some)
            assert found.value("retention", chosen.name, subject, "early") == 0
            assert found.value("retention", chosen.name, subject, "off_ms") == pytest.approx(sum(some) / len(messages))
            went.append(
                dict(zip(messages.numbers.tolist(), zip(messages.arrival_ms.tolist(), expected.gone, strict=True), strict=True))
            )
        differ = 0
        lasted = 0
        for number, (_, gone_1) in went[0].items():
            arrival_2, gone_2 = went[1][number]
            apart_ms = max(0, max(gone_1, gone_2) - max(min(gone_1, gone_2), arrival_2))
            differ += apart_ms > 0
            lasted += apart_ms
        assert found.value("retention", chosen.name, f"{kind}, both clusters", "messages") == differ
        assert found.value("retention", chosen.name, f"{kind}, both clusters", "share_ms") == pytest.approx(lasted / len(first))


TIMES = st.integers(0, 60)


@given(st.lists(st.tuples(TIMES, TIMES, TIMES, st.booleans()), min_size=1, max_size=20))
def test_lateness_message_by_message(rows: list[tuple[int, int, int, bool]]) -> None:
    made = [one for one, _, _, _ in rows]
    arrival = [one + late for one, late, _, _ in rows]
    gone = [broker.NEVER if stays else min(100, one + late + lived) for one, late, lived, stays in rows]
    found = lateness(array(made), array(arrival), array(gone), retention_ms=20, allowance_ms=5, end_ms=100)
    early, long, off = [], [], 0
    for row in range(len(rows)):
        until = min(gone[row], 100)
        if gone[row] <= 100 and until - made[row] < 20:
            early.append(20 - (until - made[row]))
        if until - made[row] > 25:
            long.append(until - made[row] - 25)
        off += abs(until - made[row] - 20)
    assert (found.early, found.early_max_ms) == (len(early), max(early, default=0))
    assert (found.long, found.long_max_ms) == (len(long), max(long, default=0))
    assert found.left == sum(one == broker.NEVER for one in gone)
    assert found.off_ms == pytest.approx((sum(early) + sum(long)) / len(rows))
    assert found.age_off_ms == pytest.approx(off / len(rows))
    assert found.unread == sum(one <= 100 for one in gone)


@given(st.lists(st.tuples(TIMES, TIMES, TIMES, TIMES), min_size=1, max_size=12))
def test_divergence_instant_by_instant(rows: list[tuple[int, int, int, int]]) -> None:
    arrival_1, arrival_2 = [one for one, _, _, _ in rows], [one for _, one, _, _ in rows]
    gone_1 = [arrival + lived for arrival, _, lived, _ in rows]
    gone_2 = [arrival + lived for _, arrival, _, lived in rows]
    first, last = apart(array(arrival_1), array(gone_1), array(arrival_2), array(gone_2), end_ms=100)
    counts = []
    lasted = [0] * len(rows)
    for now in range(100):
        differ = [
            now >= max(arrival_1[row], arrival_2[row]) and (now >= gone_1[row]) != (now >= gone_2[row])
            for row in range(len(rows))
        ]
        lasted = [before + one for before, one in zip(lasted, differ, strict=True)]
        counts.append(sum(differ))
    found = divergence(first, last)
    assert (found.messages, found.longest_ms, found.most) == (sum(one > 0 for one in lasted), max(lasted), max(counts))
    assert found.share_ms == pytest.approx(sum(lasted) / len(rows))
    course = dict(steps(first, last))
    count = 0
    for now in range(100):
        count = course.get(now, count)
        assert count == counts[now]


def array(values: list[int]) -> Int64s:
    return np.array(values, np.int64)


def test_steps_are_told_as_text() -> None:
    text = measuring.encode_steps([(EPOCH_MS + 60_000, 3), (EPOCH_MS + 120_000, 3), (EPOCH_MS + 150_000, 5)])
    assert measuring.decode_steps(text) == [(1, 3), (2.5, 5)]


def test_a_partition_that_moves(tmp_path: Path) -> None:
    """Timestamps come along, file times do not."""
    found = Measurements(moving.measure_reassignment(SCALE, tmp_path))
    whole, _ = scenario("small latency").messages(SCALE)
    arrivals = [one for one in whole.arrival_ms.tolist() if one < moving.MOVED_MS]
    create = whole.create_ms.tolist()[: len(arrivals)]
    case = "copied on day 4"
    for subject, stamps, rule, by in (
        (CREATE_TIME, create, "first", "largest"),
        (LOG_APPEND_TIME, arrivals, "first", "largest"),
        (moving.NO_TIMESTAMPS, arrivals, "created", "file"),
    ):
        stays = model.keep(arrivals, stamps, CHECKS, SEGMENT_MS, RETENTION_MS, rule=rule, by=by)
        moved_late = []
        for offset, gone in enumerate(stays.gone):
            # With one file time for all, everything that is there goes retention.ms after the move.
            new_gone = moving.MOVED_MS + RETENTION_MS + CHECK_MS if by == "file" and gone > moving.MOVED_MS else gone
            moved_late.append(max(0, new_gone - create[offset] - RETENTION_MS - SEGMENT_MS - CHECK_MS))
        assert found.value("reassignment", case, f"{subject}, moves", "long") == sum(one > 0 for one in moved_late)
    assert found.value("reassignment", case, f"{moving.NO_TIMESTAMPS}, moves", "segments") == 1
    for kind in broker.TYPES:
        segments = [found.value("reassignment", case, f"{kind}, {where}", "segments") for where in ("stays", "moves")]
        assert segments[0] == segments[1]


def test_segments_of_old_and_new_formats(tmp_path: Path) -> None:
    messages = moving.hour_late(SCALE)
    upgraded_ms = moving.upgrade_time(messages)
    kept = broker.run(tmp_path / "one", messages, CREATE_TIME, old_format_until_ms=upgraded_ms)
    arrivals = messages.arrival_ms.tolist()
    stamps = [
        -1 if arrival < upgraded_ms else create for arrival, create in zip(arrivals, messages.create_ms.tolist(), strict=True)
    ]
    expected = model.keep(arrivals, stamps, CHECKS, SEGMENT_MS, RETENTION_MS, rule="mixed", by="mixed")
    assert kept.stamps_ms.tolist() == stamps
    assert (kept.gone_ms.tolist(), kept.starts.tolist()) == (expected.gone, expected.bases)


def test_what_the_deletion_of_old_and_new_segments_goes_by(tmp_path: Path) -> None:
    found = Measurements(moving.measure_migration(SCALE, tmp_path))
    case = "format 0.9.0 to today's"
    for kind, by in (
        (moving.ONLY_OLD, "last modification"),
        (moving.MIXED, "largest timestamp"),
        (moving.ONLY_NEW, "largest timestamp"),
    ):
        assert found.value("migration", case, kind, f"goes by {by}") == found.value("migration", case, kind, "segments") > 0
