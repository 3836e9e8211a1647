"""Option brokers and replicas against plain lists: retention, rolling, index entries, crashes, a slower new leader."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.options import fetch_response, leader_change, replicas
from studies.options.broker import Broker, IndexCopy, deletion_times
from studies.options.fetch_response import IndexEntry, PartitionData
from studies.options.formats import OPTIONS, Message, Option, encode_set
from studies.options.replicas import ROLES, Layout, retention_errors, rolling_errors
from studies.workload import HOUR_MS, MINUTE_MS, Workload, generate
from tests.examples import examples
from tidelog.errors import InvalidRecordError

MESSAGES = generate(Workload("small", 5, 400, 12 * HOUR_MS / 400))
ON_MODELS = list(replicas.MODELS)


def sent(option: Option, count: int = 1, create_ms: int = 0) -> bytes:
    return encode_set(option, [Message(i, create_ms, -1, None, b"value") for i in range(count)])


def broker(option: Option, copy: IndexCopy = IndexCopy.FETCHED_LATE, segment_ms: int = HOUR_MS, segment_bytes: int = 1 << 30):
    return Broker(option, segment_ms=segment_ms, segment_bytes=segment_bytes, now_ms=0, copy=copy)


# --- retention


@examples(40)
@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10_000)), min_size=1, max_size=12), st.integers(0, 5_000))
def test_segments_go_when_all_before_them_are_old_enough(pieces, retention_ms):
    """Oldest first: a segment waits for the largest time up to its own, and a millisecond more."""
    bases = np.cumsum([0] + [count for count, _ in pieces]).tolist()
    segments = [(base, end, 1) for base, end in pairwise(bases)]
    largest = [time for _, time in pieces]
    expected = {base: max(largest[: i + 1]) + retention_ms + 1 for i, (base, _, _) in enumerate(segments)}
    assert deletion_times(segments, largest, retention_ms) == expected


@pytest.mark.parametrize("subject", ON_MODELS)
def test_retention_errors_are_those_of_a_plain_calculation(subject):
    """What retention goes by, from the moments of appends, fetches, the crash and the reassignment, without a broker."""
    run = replicas.run(subject, MESSAGES, None, by_size=True)
    appended = list(run.append_ms)
    option, copy = replicas.MODELS[subject]
    fetched = [time + replicas.FOLLOWER_LAG_MS + replicas.FOLLOWER_SKEW_MS for time in appended]
    requests = range(replicas.REQUEST_MESSAGES - 1, len(appended), replicas.REQUEST_MESSAGES)
    crash = next(appended[i] for i in requests if i + 1 >= replicas.CRASH_AT * len(appended))
    reassigned = next(appended[i] for i in requests if i + 1 >= replicas.REASSIGNED_AT * len(appended))
    for role in ROLES:
        layout = run.layouts[role]
        ends = [*layout.base_offsets[1:], layout.end_offset]
        pieces = list(zip(layout.base_offsets, ends, strict=True))
        if option.has_append_time or role == replicas.LEADER:
            largest = [appended[end - 1] for _, end in pieces]
            if role == replicas.LEADER and option is Option.CREATE_TIME:
                largest[-1] = last_in_index(appended, *pieces[-1])
        elif option is Option.BEFORE and role != replicas.NEW_COPY:
            own = appended if role == replicas.ALONE else fetched
            largest = [own[end - 1] for _, end in pieces]
            if "crash" in role:
                # The recovery touches the file that was written to; a follower had not fetched the last request.
                alone = role == replicas.ALONE
                last = appended.index(crash) - (0 if alone else 1)
                moment = crash if alone else crash + replicas.FOLLOWER_SKEW_MS
                largest = [max(x, moment) if base <= last < end else x for x, (base, end) in zip(largest, pieces, strict=True)]
        elif option is Option.BEFORE:
            moment = reassigned + replicas.FOLLOWER_LAG_MS + replicas.FOLLOWER_SKEW_MS
            largest = [max(fetched[end - 1], moment) for _, end in pieces]
        elif copy is IndexCopy.FETCHED_LATE and role != replicas.ALONE:
            largest = [appended[end - 1] for _, end in pieces[:-1]] + [last_in_index(appended, *pieces[-1])]
        elif role == replicas.ALONE:
            # Rebuilt at the crash; what comes later is indexed as on any leader.
            largest = [max(appended[end - 1], crash) for _, end in pieces[:-1]]
            largest.append(last_in_index(appended, *pieces[-1]))
        else:
            continue  # by fetches of several requests, or entries that are missing: checked below
        truth = np.maximum.accumulate([appended[end - 1] for _, end in pieces])
        errors = np.maximum.accumulate(largest) - truth
        found = retention_errors(appended, layout)
        assert found.segments == len(pieces)
        assert found.mean_ms == pytest.approx(float(np.abs(errors).mean()))
        assert (found.late_ms, found.early_ms) == (max(0, errors.max()), max(0, -errors.min()))


def last_in_index(appended: list[int], base: int, end: int) -> int:
    """The last entry of an unfinished segment: of the last minute that something was appended in, the first time."""
    last = appended[base]
    for time in appended[base:end]:
        if time // MINUTE_MS > last // MINUTE_MS:
            last = time
    return last


def test_a_follower_that_fetches_as_drafted_lacks_the_last_entries():
    drafted = replicas.run("option 3, index fetched as drafted", MESSAGES, None, by_size=True).layouts
    late_too = replicas.run("option 3, late entries fetched too", MESSAGES, None, by_size=True).layouts
    segments = len(drafted[replicas.LEADER].base_offsets)
    assert late_too[replicas.FOLLOWER].index_entries == late_too[replicas.LEADER].index_entries
    missing = drafted[replicas.LEADER].index_entries - drafted[replicas.FOLLOWER].index_entries
    assert 0 < missing <= segments - 1


def test_rebuilt_times_are_those_of_the_recovery():
    one = broker(Option.CREATE_TIME, segment_bytes=len(sent(Option.CREATE_TIME, 3)))
    for minute in range(9):
        one.append_as_leader(sent(Option.CREATE_TIME), minute * MINUTE_MS)
    one.crash(20 * MINUTE_MS)
    assert [segment.entries for segment in one.segments] == [
        [IndexEntry(20 * MINUTE_MS, 0), IndexEntry(20 * MINUTE_MS, 2)],
        [IndexEntry(20 * MINUTE_MS, 3), IndexEntry(20 * MINUTE_MS, 5)],
        [IndexEntry(20 * MINUTE_MS, 6)],
    ]
    assert one.append_as_leader(sent(Option.CREATE_TIME), 10 * MINUTE_MS) == 20 * MINUTE_MS, "never backward"


# --- the index on its way


@examples(40)
@given(
    st.text(max_size=20), st.binary(max_size=50), st.lists(st.tuples(st.integers(-1, 2**62), st.integers(0, 2000)), max_size=5)
)
def test_a_fetch_response_is_what_the_draft_lays_out(topic, messages, entries):
    data = PartitionData(topic, 3, 0, 2**40, messages, tuple(IndexEntry(*entry) for entry in entries))
    raw = fetch_response.encode(data, 1000)
    name = topic.encode()
    expected = struct.pack(">ih", 1, len(name)) + name + struct.pack(">iihqi", 1, 3, 0, 2**40, len(messages)) + messages
    expected += struct.pack(">i", len(entries))
    for time, offset in entries:
        expected += struct.pack(">qi", time, offset - 1000)
    assert raw == expected
    assert fetch_response.decode(raw, 1000) == data
    for wrong in (raw[:-1], raw + b"x", raw[:3]):
        with pytest.raises(InvalidRecordError):
            fetch_response.decode(wrong, 1000)


# --- rolling


@examples(40)
@given(st.lists(st.integers(0, 40 * MINUTE_MS), min_size=1, max_size=40), st.sampled_from(OPTIONS))
def test_a_leader_rolls_by_the_first_append_time(gaps, option):
    times = np.cumsum(gaps).tolist()
    leader = broker(option)
    bases = [0]
    for offset, time in enumerate(times):
        leader.append_as_leader(sent(option), time)
        if time - times[bases[-1]] > HOUR_MS:
            bases.append(offset)
    assert leader.base_offsets == bases


@examples(40)
@given(
    st.lists(st.tuples(st.integers(0, 10 * MINUTE_MS), st.integers(1, 4), st.booleans()), min_size=1, max_size=40),
    st.sampled_from(OPTIONS),
)
def test_a_follower_has_the_leaders_bytes_segments_and_index(steps, option):
    leader, follower = broker(option), broker(option)
    now = 0
    for gap, count, fetches in steps:
        now += gap
        leader.append_as_leader(sent(option, count, now), now)
        if fetches:
            leader.replicate(follower, now - 7)
    leader.replicate(follower, now - 7)
    assert follower.read() == leader.read()
    assert follower.base_offsets == leader.base_offsets
    assert [segment.index_file() for segment in follower.segments] == [segment.index_file() for segment in leader.segments]
    assert leader.fetch(0).entries == (), "consumers are sent no index"


@examples(40)
@given(
    st.lists(st.tuples(st.integers(0, 5 * MINUTE_MS), st.integers(1, 4)), min_size=1, max_size=30),
    st.integers(0, 130),
)
def test_the_index_has_firsts_of_segments_and_minutes_and_lasts_of_finished_segments(steps, cut):
    leader = broker(Option.CREATE_TIME)
    now, times = 0, []
    for gap, count in steps:
        now += gap
        leader.append_as_leader(sent(Option.CREATE_TIME, count), now)
        times += [now] * count
    bases = [*leader.base_offsets, len(times)]
    expected = []
    for index, (base, end) in enumerate(pairwise(bases)):
        inside = [o for o in range(base, end) if o == base or times[o] // MINUTE_MS > times[o - 1] // MINUTE_MS]
        if index < len(bases) - 2 and inside[-1] != end - 1:
            inside.append(end - 1)
        expected.append([(times[o], o) for o in inside])
    assert [segment.entries for segment in leader.segments] == expected
    leader.truncate_to(cut)
    kept = min(cut, len(times))
    assert [entry for segment in leader.segments for entry in segment.entries] == [
        (time, o) for entries in expected for time, o in entries if o < kept
    ]
    assert leader.end_offset == kept == len(leader.read())


def test_a_new_copy_rolls_only_if_it_knows_the_leaders_times():
    """All that it fetches at once has one time on a copy that goes by its own clock."""
    for option, copy, segments in (
        (Option.BEFORE, IndexCopy.OWN, 1),
        (Option.CREATE_TIME, IndexCopy.OWN, 1),
        (Option.CREATE_TIME, IndexCopy.FETCHED, 5),
        (Option.BOTH, IndexCopy.OWN, 5),
        (Option.APPEND_TIME, IndexCopy.OWN, 5),
    ):
        leader = broker(option, copy)
        new = Broker(option, segment_ms=HOUR_MS, segment_bytes=1 << 30, now_ms=6 * HOUR_MS, copy=copy)
        for hour in range(5):
            leader.append_as_leader(sent(option, 3), hour * (HOUR_MS + 1))
        leader.replicate(new, 6 * HOUR_MS)
        assert len(leader.base_offsets) == 5
        assert len(new.base_offsets) == segments


def test_rolling_errors_by_hand():
    times = [0, 10, HOUR_MS + 20, HOUR_MS + 30, 3 * HOUR_MS]
    found = rolling_errors(times, Layout((0, 3), 5, ()), Layout((0, 2, 4), 5, ()))
    assert found == (2, 1 / 3, max(HOUR_MS + 20, 2 * HOUR_MS - 30) - HOUR_MS, 0)
    assert rolling_errors(times, Layout((0, 1, 2, 4), 5, ()), Layout((0, 2, 4), 5, ())) == (4, 3 / 4, 0, 1)


# --- what was accepted


@pytest.mark.parametrize(("subject", "by_size"), [("accepted: CreateTime", False), ("accepted: LogAppendTime", True)])
def test_the_engine_is_alike_on_all_replicas_and_right(subject, by_size, tmp_path):
    run = replicas.run(subject, MESSAGES, tmp_path, by_size=by_size)
    leader = run.layouts[replicas.LEADER]
    appended = list(run.append_ms)
    assert len({layout[:3] for layout in run.layouts.values()}) == 1
    ends = [*leader.base_offsets[1:], leader.end_offset]
    times = MESSAGES.create_ms if subject == "accepted: CreateTime" else np.array(appended)
    largest = np.maximum.accumulate([times[base:end].max() for base, end in zip(leader.base_offsets, ends, strict=True)])
    assert list(leader.deleted_ms) == (largest + replicas.RETENTION_MS + 1).tolist()
    if not by_size:
        bases = [0]
        for first in range(0, len(appended), replicas.REQUEST_MESSAGES):
            batch = times[first : first + replicas.REQUEST_MESSAGES]
            if batch.max() - times[bases[-1] : bases[-1] + replicas.REQUEST_MESSAGES].max() > replicas.SEGMENT_MS:
                bases.append(first)
        assert list(leader.base_offsets) == bases


# --- a slower new leader


@examples(50)
@given(st.lists(st.integers(-60_000, 60_000), min_size=2, max_size=30), st.sampled_from(OPTIONS))
def test_append_times_are_the_later_of_last_and_clock(clock_steps, option):
    one = broker(option)
    clock, last, expected = 10**6, -1, []
    for step in clock_steps:
        clock = max(0, clock + step)
        last = max(last, clock)
        expected.append(last)
        assert one.append_as_leader(sent(option), clock) == last
    if option.has_append_time:
        assert [message.append_ms for message in one.read()] == expected


def test_a_slower_new_leader(tmp_path):
    (case,) = leader_change.cases(0.05)
    found = {(m.subject, m.metric): m.value for m in leader_change.measure(case, tmp_path)}
    arrivals = generate(leader_change.workload(case)).arrival_ms.tolist()
    half = len(arrivals) // 2
    clock = arrivals[:half] + [time - leader_change.BEHIND_MS for time in arrivals[half:]]
    rule = np.maximum.accumulate(clock).tolist()
    for subject, times in (
        (leader_change.ENGINE_RULE, rule),
        (leader_change.MODEL_RULE, rule),
        (leader_change.ENGINE_PLAIN, clock),
    ):
        back = [before - after for before, after in pairwise(times) if after < before]
        assert found[subject, "steps back"] == len(back)
        assert found[subject, "largest step back"] == max(back, default=0)
        assert found[subject, "messages with the old leader's last time"] == times[half:].count(times[half - 1])
        assert found[subject, "largest error of LogAppendTime"] == max(abs(a - b) for a, b in zip(times, arrivals, strict=True))
