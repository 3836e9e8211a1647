"""Option 3's index after replicas crash, and the effect on retention and rolling. Each case is one history.

| history | |
|---|---|
| caught up | the follower has each message when the segment rolls; entries "in the message set" |
| lagging | it fetches every five minutes |
| caught up, closing entries sent | as `replicated` repairs the protocol |
| follower crashes, index fetched | as the document requires |
| follower crashes, last / every segment rebuilt | from its own log, with the time of the rebuild |
| the same, its clock a day behind | like a machine whose clock has no battery |
| leader crashes, index fetched / rebuilt | the follower becomes the leader; the old leader truncates to its log |
| leader crashes, entries not cut | violates requirement 4 |
| both crash | the leader rebuilds its last segment, because no replica has its index; the follower fetches from it |
| no more messages | the last segment is rebuilt ten hours later, and no later message corrects its last entry |

Every segment's true last append time is known here. So retention (`storage.partition.retention.due`, called for every relevant
millisecond) runs once with it and once with the replica's index; the difference is the index's error. Rolling is tested in the
same way: after its recovery the replica becomes the leader, and rolls.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from studies.case import Case, Measurement, one_of
from studies.indexes.replicated import Replica, TimeEntry, entry_overhead_bytes
from studies.workload import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, SMALL_LATENCY, Workload, build_batch, generate
from tidelog.config import LogConfig
from tidelog.storage.partition.retention import SegmentFacts, due

PART = "option 3"
ROLL_MS = 4 * HOUR_MS
RETENTION_MS = DAY_MS
FETCH_BYTES = 64 << 10
BATCH_RECORDS = 4
CRASH_SHARE = 0.7
DOWN_MS = 10 * MINUTE_MS
EVERY = 1 << 30
"""Every segment is rebuilt or copied."""


@dataclass(frozen=True)
class History:
    """Which replica crashes, and how its index is restored."""

    crash: str = ""
    """"follower", "leader", "both", or "" for none."""
    fetch_every_ms: int = SECOND_MS
    with_closing: bool = True
    recovery: str = "fetched"
    """"fetched" or "rebuilt"."""
    segments: int = 1
    """The number of last segments whose index was lost."""
    clock_behind_ms: int = 0
    entries_cut: bool = True
    down_ms: int = DOWN_MS
    silence: bool = False
    """Whether no message arrives after the crash."""


HISTORIES = {
    "caught up": History(with_closing=False),
    "lagging": History(with_closing=False, fetch_every_ms=5 * MINUTE_MS),
    "caught up, closing entries sent": History(),
    "follower crashes, index fetched": History("follower"),
    "follower crashes, last segment rebuilt": History("follower", recovery="rebuilt"),
    "follower crashes, every segment rebuilt": History("follower", recovery="rebuilt", segments=EVERY),
    "follower crashes, every segment rebuilt, its clock a day behind": History(
        "follower", recovery="rebuilt", segments=EVERY, clock_behind_ms=DAY_MS
    ),
    "leader crashes, index fetched": History("leader", fetch_every_ms=5 * MINUTE_MS),
    "leader crashes, last segment rebuilt": History("leader", fetch_every_ms=5 * MINUTE_MS, recovery="rebuilt"),
    "leader crashes, entries not cut": History("leader", fetch_every_ms=5 * MINUTE_MS, recovery="kept", entries_cut=False),
    "both crash": History("both", recovery="rebuilt"),
    "follower crashes, nothing comes any more, last segment rebuilt": History(
        "follower", recovery="rebuilt", down_ms=10 * HOUR_MS, silence=True
    ),
}

PLOTTED = "follower crashes, every segment rebuilt"


class Arrival(NamedTuple):
    """Messages that arrive at the leader at once."""

    at_ms: int
    records: int
    size_bytes: int


class Outcome(NamedTuple):
    """The end of a history."""

    leader: Replica
    replica: Replica
    """The replica that crashed; the follower, if none did."""
    append_ms: dict[int, int]
    """The true append time of each batch, by its first offset."""
    recovered_ms: int
    recovered: Replica
    """The state of that replica when its index was lost."""
    fetches: int
    fetched_bytes: int
    fetched_again: int
    """The number of entries that came from the leader after the crash, because the replica's own were lost."""
    entry_bytes: int
    """By how many bytes the entries lengthened the responses."""


class Mistakes(NamedTuple):
    """The errors of retention."""

    early: int
    """The number of segments deleted too early."""
    early_ms: int
    """The largest error of these segments."""
    early_bytes: int
    late: int
    late_ms: int
    late_bytes: int


def workload(scale: float) -> Workload:
    """Return the workload: a day and a half at scale 1, but at least four segments."""
    return Workload("option 3", 32, max(2_400, round(25_920 * scale)), 5_000.0 * max(1.0, 1 / (scale * 3)), SMALL_LATENCY)


def cases(scale: float) -> list[Case]:
    """Return one case for each history."""
    return [Case(PART, name, {"scale": scale}) for name in HISTORIES]


def arrivals(scale: float) -> list[Arrival]:
    """Return the arrivals, batch by batch."""
    messages = generate(workload(scale))
    found: list[Arrival] = []
    for first in range(0, len(messages), BATCH_RECORDS):
        some = messages.part(first, first + BATCH_RECORDS)
        found.append(Arrival(int(some.arrival_ms[-1]), len(some), len(build_batch(some))))
    return found


def simulate(coming: Sequence[Arrival], history: History) -> Outcome:
    """Run a leader and a follower through a history."""
    leader, follower = Replica(ROLL_MS), Replica(ROLL_MS)
    crash_ms = coming[int(len(coming) * CRASH_SHARE)].at_ms if history.crash else None
    back_ms = coming[-1].at_ms if crash_ms is None else crash_ms + history.down_ms
    append_ms: dict[int, int] = {}
    fetches = fetched_bytes = fetched_again = entry_bytes = takeover_offset = 0
    next_fetch = coming[0].at_ms + history.fetch_every_ms
    down: Replica | None = None
    recovered: Replica | None = None

    def fetch() -> None:
        nonlocal fetches, fetched_bytes, entry_bytes
        while follower is not down and follower.end_offset < leader.end_offset:
            fetched = leader.fetch(follower.end_offset, FETCH_BYTES, with_closing=history.with_closing)
            follower.take(fetched)
            fetches += 1
            fetched_bytes += sum(batch.size_bytes for batch in fetched.batches)
            entry_bytes += entry_overhead_bytes(len(fetched.entries))

    def come_back(replica: Replica) -> None:
        nonlocal fetched_again
        if history.crash == "leader":
            # Batches that no replica had fetched are lost: the new leader continued from its own log end.
            replica.truncate_to(takeover_offset, entries_too=history.entries_cut)
        if history.crash == "both" or history.recovery == "fetched":
            fetched_again = replica.copy_index(leader, history.segments)
        elif history.recovery == "rebuilt":
            replica.rebuild(back_ms - history.clock_behind_ms, history.segments)

    for arrival in coming:
        if next_fetch <= arrival.at_ms:
            # Between two arrivals one fetch gets all records, and further ones get nothing.
            fetch()
            next_fetch += ((arrival.at_ms - next_fetch) // history.fetch_every_ms + 1) * history.fetch_every_ms
        if crash_ms is not None and arrival.at_ms >= crash_ms:
            crash_ms = None
            if history.crash == "leader":
                leader, follower = follower, leader
                takeover_offset = leader.end_offset
            down = follower
            if history.crash == "both":
                leader.rebuild(arrival.at_ms, history.segments)
                recovered = copy.deepcopy(leader)
            if history.silence:
                break
        if down is not None and arrival.at_ms >= back_ms:
            come_back(down)
            recovered, down = recovered or copy.deepcopy(down), None
        at = leader.end_offset
        append_ms[at] = leader.append(arrival.records, arrival.size_bytes, arrival.at_ms)
    if down is not None:
        come_back(down)
        recovered, down = copy.deepcopy(down), None
    fetch()
    return Outcome(
        leader, follower, append_ms, back_ms, recovered or follower, fetches, fetched_bytes, fetched_again, entry_bytes
    )


def deletions(facts: Sequence[SegmentFacts], largest: Callable[[int], int], from_ms: int) -> dict[int, int]:
    """Return when retention deletes each segment (epoch ms, by base offset), if it runs every millisecond from that time."""
    config = LogConfig(retention_ms=RETENTION_MS)
    # The result changes only in the millisecond after which a segment is old enough.
    moments = {max(from_ms, largest(one.base_offset) + RETENTION_MS + 1) for one in facts}
    left = list(facts)
    gone: dict[int, int] = {}
    for now_ms in sorted({from_ms, *moments}):
        going = due(
            left,
            config,
            now_ms=now_ms,
            high_watermark=facts[-1].end_offset,
            log_start_offset=facts[0].base_offset,
            largest_timestamp=largest,
        )
        gone.update({one.facts.base_offset: now_ms for one in going})
        left = left[len(going) :]
    return gone


def true_last(outcome: Outcome, facts: Sequence[SegmentFacts]) -> dict[int, int]:
    """Return each segment's true last append time."""
    return {
        one.base_offset: max(time for offset, time in outcome.append_ms.items() if one.base_offset <= offset < one.end_offset)
        for one in facts
    }


def retention_mistakes(outcome: Outcome, from_ms: int) -> Mistakes:
    """Run retention from a time on with the replica's index and with the true times; compare segment by segment."""
    facts = outcome.replica.facts()
    last = true_last(outcome, facts)
    told = deletions(facts, outcome.replica.largest, from_ms)
    true = deletions(facts, last.__getitem__, from_ms)
    early = [one for one in facts if told[one.base_offset] < true[one.base_offset]]
    late = [one for one in facts if told[one.base_offset] > true[one.base_offset]]
    return Mistakes(
        len(early),
        max((true[one.base_offset] - told[one.base_offset] for one in early), default=0),
        sum(one.size_bytes for one in early),
        len(late),
        max((told[one.base_offset] - true[one.base_offset] for one in late), default=0),
        sum(one.size_bytes for one in late),
    )


def roll_after(replica: Replica, last_ms: int, every_ms: int, size_bytes: int) -> tuple[int, int]:
    """Let a copy of a replica continue as leader at a steady rate; return when its segment rolls (epoch ms), and its size."""
    leading = copy.deepcopy(replica)
    segments = len(leading.parts)
    now_ms = last_ms
    while len(leading.parts) == segments:
        now_ms += every_ms
        leading.append(BATCH_RECORDS, size_bytes, now_ms)
    return now_ms, leading.parts[segments - 1].size_bytes


def with_true_first(outcome: Outcome) -> Replica:
    """Return a copy of the recovered replica whose active segment knows its first message's arrival."""
    true = copy.deepcopy(outcome.recovered)
    part = true.parts[-1]
    part.entries[0] = TimeEntry(outcome.append_ms[part.base_offset], part.base_offset)
    return true


def measure(case: Case, work_dir: Path) -> Iterator[Measurement]:
    """Run one history, and measure the differences of the index and their effects."""
    one_of(list(HISTORIES), case.name, "history")
    coming = arrivals(float(case.parameters["scale"]))
    outcome = simulate(coming, HISTORIES[case.name])
    leader, replica = outcome.leader.index, outcome.replica.index
    true = {base: outcome.append_ms.get(base) for base, _ in replica}
    differing = len(
        {(base, one) for base, some in leader for one in some} ^ {(base, one) for base, some in replica for one in some}
    )
    history = HISTORIES[case.name]
    mistakes = retention_mistakes(outcome, outcome.recovered_ms if history.crash else coming[0].at_ms)
    every_ms = (coming[-1].at_ms - coming[0].at_ms) // (len(coming) - 1)
    told_ms, told_bytes = roll_after(outcome.recovered, outcome.recovered_ms, every_ms, coming[-1].size_bytes)
    true_ms, true_bytes = roll_after(with_true_first(outcome), outcome.recovered_ms, every_ms, coming[-1].size_bytes)
    lost = outcome.recovered.parts[-history.segments :] if history.recovery == "rebuilt" else []
    rebuilt = [entry.append_ms for part in lost for entry in part.entries]
    closed = outcome.replica.parts[:-1]
    for metric, value, unit in (
        ("segments", len(replica), "segments"),
        ("same segments", float([base for base, _ in leader] == [base for base, _ in replica]), ""),
        ("leader's entries", sum(len(entries) for _, entries in leader), "entries"),
        ("entries", sum(len(entries) for _, entries in replica), "entries"),
        ("entries that differ", differing, "entries"),
        ("identical", float(leader == replica), ""),
        ("segments without a last entry", sum(part.entries[-1].offset != part.end_offset - 1 for part in closed), "segments"),
        ("wrong first times", sum(some[0].append_ms != true[base] for base, some in replica), "segments"),
        ("entries rebuilt", len(rebuilt), "entries"),
        ("entries fetched again", outcome.fetched_again, "entries"),
        ("different times among them", len(set(rebuilt)), "times"),
        ("deleted too early", mistakes.early, "segments"),
        ("deleted too early, at most", mistakes.early_ms, "ms"),
        ("deleted too early, bytes", mistakes.early_bytes, "bytes"),
        ("kept too long", mistakes.late, "segments"),
        ("kept too long, at most", mistakes.late_ms, "ms"),
        ("kept too long, bytes", mistakes.late_bytes, "bytes"),
        ("rolls later by", told_ms - true_ms, "ms"),
        ("segment larger by", told_bytes - true_bytes, "bytes"),
        ("fetches", outcome.fetches, "fetches"),
        ("fetched bytes", outcome.fetched_bytes, "bytes"),
        ("entries on the wire", outcome.entry_bytes, "bytes"),
    ):
        yield Measurement(case.part, case.name, "replica", metric, float(value), unit)
    if case.name == PLOTTED:
        start_ms = coming[0].at_ms
        for subject, index in (("fetched", leader), ("rebuilt", replica)):
            points = [one for _, some in index for one in some]
            # Draw all rebuilt entries, but only some of the minute entries after them.
            kept = [one for one in points if one.append_ms == outcome.recovered_ms]
            points = sorted({*kept, *points[:: max(1, len(points) // 150)]}, key=lambda one: one.offset)
            yield Measurement(case.part, case.name, subject, "xs", text=",".join(str(one.offset) for one in points))
            hours = (f"{(one.append_ms - start_ms) / HOUR_MS:.3f}" for one in points)
            yield Measurement(case.part, case.name, subject, "ys", text=",".join(hours))
