"""The rolling rules: against the engine, and against a model of plain lists."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.case import Measurements
from studies.policies import measuring
from studies.policies.rolling_rules import RollingRule, segment_starts, segmentation
from studies.policies.scenarios import SEGMENT_MS, scenario
from studies.workload import EPOCH_MS
from tests.examples import examples
from tests.storage.partition_logs import NOW_MS, bases, batch, config, open_log, timed
from tests.studies import policies_model as model
from tidelog.clock import ManualClock
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME

RULES = {
    RollingRule.CREATE_TIME_OF_SEGMENT: "created",
    RollingRule.FIRST_MESSAGE: "first",
    RollingRule.LARGEST_TIMESTAMP: "largest",
    RollingRule.CLOCK_AND_FIRST_MESSAGE: "clock",
}
SEGMENT = 100
APPENDS = st.lists(st.tuples(st.integers(0, 80), st.integers(-250, 250)), min_size=1, max_size=25)
"""How much later than the last one a message comes, and how far its timestamp is from that time (ms)."""


def times(appends: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    clock = (NOW_MS + np.cumsum([later for later, _ in appends])).tolist()
    return clock, [now + off for now, (_, off) in zip(clock, appends, strict=True)]


def engine(clocks: list[int], batches: list[bytearray], **properties: str) -> tuple[list[int], int, int]:
    """Where the segments of a real log begin when the batches come at these times, and what the log has counted."""
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(NOW_MS)
        log = open_log(Path(folder), clock, segment_ms=SEGMENT)
        log.update_config(config(segment_ms=SEGMENT, **properties))
        for now, data in zip(clocks, batches, strict=True):
            clock.advance(now - clock.now_ms())
            log.append_as_leader(data, 0)
        found = bases(log), log.statistics.rolled_by_time, log.statistics.one_batch_segments
        log.close_handlers()
    return found


@examples(25)
@given(APPENDS)
def test_the_accepted_rule_is_the_engines(appends: list[tuple[int, int]]) -> None:
    clocks, stamps = times(appends)
    starts = segment_starts(RollingRule.FIRST_MESSAGE, np.array(stamps), np.array(clocks), SEGMENT)
    found, rolled, alone = engine(clocks, [batch(timestamp=stamp) for stamp in stamps])
    assert found == starts.tolist()
    assert rolled == len(starts) - 1
    assert alone == segmentation(starts, np.array(clocks), SEGMENT).one_message


@examples(15)
@given(APPENDS)
def test_with_append_times_as_well(appends: list[tuple[int, int]]) -> None:
    clocks, stamps = times(appends)
    for rule in (RollingRule.FIRST_MESSAGE, RollingRule.CLOCK_AND_FIRST_MESSAGE):
        starts = segment_starts(rule, np.array(clocks), np.array(clocks), SEGMENT)
        found, _, _ = engine(clocks, [batch(timestamp=stamp) for stamp in stamps], message_timestamp_type="LogAppendTime")
        assert found == starts.tolist()


@examples(15)
@given(APPENDS)
def test_without_timestamps_the_engine_goes_by_the_segments_create_time(appends: list[tuple[int, int]]) -> None:
    clocks, stamps = times(appends)
    starts = segment_starts(RollingRule.CREATE_TIME_OF_SEGMENT, np.array(stamps), np.array(clocks), SEGMENT, NOW_MS)
    found, _, _ = engine(clocks, [batch(timestamp=stamp) for stamp in stamps], message_format_version="0.9.0")
    assert found == starts.tolist()


@examples(15)
@given(st.lists(st.lists(st.integers(-250, 250), min_size=1, max_size=4), min_size=1, max_size=15))
def test_of_a_batch_the_largest_timestamp_counts(batches: list[list[int]]) -> None:
    stamps = [[NOW_MS + off for off in one] for one in batches]
    clocks = [NOW_MS] * len(batches)
    starts = segment_starts(RollingRule.FIRST_MESSAGE, np.array([max(one) for one in stamps]), np.array(clocks), SEGMENT)
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in batches])])
    found, _, _ = engine(clocks, [timed(one) for one in stamps])
    assert found == offsets[starts].tolist()


@given(APPENDS)
def test_every_rule_is_the_models(appends: list[tuple[int, int]]) -> None:
    clocks, stamps = times(appends)
    for rule, name in RULES.items():
        starts = segment_starts(rule, np.array(stamps), np.array(clocks), SEGMENT, NOW_MS)
        assert starts.tolist() == model.cut(name, stamps, clocks, SEGMENT, NOW_MS)


@given(APPENDS, st.sampled_from(list(RollingRule)))
def test_what_is_counted_of_segments(appends: list[tuple[int, int]], rule: RollingRule) -> None:
    clocks, stamps = times(appends)
    starts = segment_starts(rule, np.array(stamps), np.array(clocks), SEGMENT)
    parts = [clocks[first:last] for first, last in zip(starts, [*starts[1:], len(clocks)], strict=True)]
    finished = parts[:-1] or parts
    spans = sorted(part[-1] - part[0] for part in finished)
    lived = [after[0] - part[0] for part, after in itertools.pairwise(parts)]
    last = parts[-1][-1] - parts[-1][0]
    found = segmentation(starts, np.array(clocks), SEGMENT)
    assert found.segments == len(parts)
    assert found.one_message == sum(len(part) == 1 for part in parts[:-1])
    assert (found.smallest_span_ms, found.largest_span_ms) == (spans[0], spans[-1])
    assert found.median_span_ms == (spans[(len(spans) - 1) // 2] + spans[len(spans) // 2]) / 2
    assert found.longest_active_ms == max([*lived, last])
    assert found.worst_off_ms == max([abs(one - SEGMENT) for one in lived] + [max(0, last - SEGMENT)])


@pytest.mark.parametrize("name", ["large latency", "mixed latency", "one from the future", "broker jumps 12 hours"])
def test_a_scenarios_measurements(name: str, tmp_path: Path) -> None:
    chosen = scenario(name)
    found = Measurements(measuring.measure_rolling(chosen, 0.04, tmp_path))
    messages, _ = chosen.messages(0.04)
    clocks = [one + chosen.broker.at(one) for one in messages.arrival_ms.tolist()]
    append_times: list[int] = []
    for one in clocks:
        append_times.append(max([one, *append_times[-1:]]))
    for rule, kind in measuring.RULES_AND_TYPES:
        stamps = messages.create_ms.tolist() if kind == CREATE_TIME else append_times
        cuts = model.cut(RULES[rule], stamps, clocks, SEGMENT_MS, EPOCH_MS)
        subject = measuring.rule_subject(rule, kind)
        assert found.value("rolling", name, subject, "segments") == len(cuts)
        ends = [*cuts[1:], len(stamps)]
        alone = [last - first == 1 for first, last in zip(cuts, ends, strict=True)][:-1]
        assert found.value("rolling", name, subject, "one_message") == sum(alone)
    for kind in (CREATE_TIME, LOG_APPEND_TIME):
        for metric in ("same as the rule", "same after a copy"):
            assert found.value("rolling", name, f"engine, {kind}", metric) == 1
