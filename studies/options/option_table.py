"""KIP-32's comparison of its options, cell by cell: the draft's claim and the measured result.

The first three columns are the draft's options, followed by its "comparison" column. The last column, not in the draft, is KIP-32
as it was accepted. Verdicts follow from the numbers; none is fixed in advance.
"""

from __future__ import annotations

from typing import NamedTuple

from studies.case import Measurements
from studies.chapter import Cell, Claim, Table, Verdict
from studies.options import observed, pipeline, replicas
from studies.quantities import show_millis

OPTION_1, OPTION_2, OPTION_3 = "option 1", "option 2", "option 3"
DRAFTED, LATE_TOO, REBUILT = (
    "option 3, index fetched as drafted",
    "option 3, late entries fetched too",
    "option 3, index rebuilt locally",
)
CREATE, APPEND = "accepted: CreateTime", "accepted: LogAppendTime"

LATENCY = "1 min"
"""The latency for the cells about windows and latencies; the separate tables have all latencies."""


def verdict(holds: bool, *more: bool) -> Verdict:
    """Return "confirmed" if all conditions hold, "refuted" if none does, otherwise "in part"."""
    every = (holds, *more)
    return Verdict.CONFIRMED if all(every) else Verdict.PARTLY if any(every) else Verdict.REFUTED


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"


class Worst(NamedTuple):
    """The largest errors of a subject over some kinds of replicas, in ms."""

    late: float
    early: float

    @property
    def either(self) -> float:
        return max(self.late, self.early)

    def __str__(self) -> str:
        if self.either == 0:
            return "exact"
        parts = [
            f"{show_millis(value)} {word}" for value, word in ((self.late, "too late"), (self.early, "too early")) if value > 0
        ]
        return "up to " + ", ".join(parts)


def retention_worst(m: Measurements, subject: str, roles: tuple[str, ...] = replicas.ROLES) -> Worst:
    """Return how much too late and too early segments are deleted, at most."""
    return Worst(
        max(m.value(replicas.RETENTION, role, subject, "kept too long, most") for role in roles),
        max(m.value(replicas.RETENTION, role, subject, "deleted too early, most") for role in roles),
    )


def rolling_worst(m: Measurements, subject: str, roles: tuple[str, ...] = replicas.ROLES) -> float:
    """Return how much too long a segment stays active, at most (ms)."""
    return max(m.value(replicas.ROLLING, role, subject, "overdue, most") for role in roles)


REPLICATED = tuple(role for role in replicas.ROLES if role != replicas.ALONE)


def table(m: Measurements) -> Table:
    """Return the comparison."""
    return Table(
        "options-comparison",
        "The options by use case",
        ("Use case", "Option 1: both times", "Option 2: LogAppendTime", "Option 3: CreateTime", "Comparison", CREATE, APPEND),
        (_mirror(m), _retention(m), _rolling(m), _streams(m), _latency(m), _search()),
        source="KIP-32 draft 31, Options comparison",
        assumptions=(
            f"Windows and latency at a latency of {LATENCY} on average, exponential; windows are minutes by the time of making.",
            f"Retention {show_millis(replicas.RETENTION_MS)}, segments of {show_millis(replicas.SEGMENT_MS)} where they roll"
            " by time; errors are the worst over all kinds of replicas.",
        ),
        notes=(
            "What Kafka took over is one timestamp a message and a type per topic: the last two columns, on the storage engine.",
        ),
    )


def _mirror(m: Measurements) -> tuple[Cell, ...]:
    case = observed.SHORTEST

    def share(subject: str, metric: str) -> float:
        return m.value("mirror", case, subject, metric)

    def seen(subject: str) -> str:
        return (
            f"CreateTime as made: {percent(share(subject, 'CreateTime as made, in target'))};"
            f" LogAppendTime of its own: {percent(share(subject, 'LogAppendTime differs'))} of the messages"
        )

    def cell(subject: str, claimed: str, keeps: bool, stamps: bool) -> Claim:
        made = share(subject, "CreateTime as made, in target") == float(keeps)
        differs = share(subject, "LogAppendTime differs") == float(stamps)
        return Claim(claimed, seen(subject), verdict(made, differs))

    precision = m.value("mirror", case, OPTION_3, "LogAppendTime in the index")
    off = show_millis(m.value("mirror", case, OPTION_3, "index's mean error"))
    comparison = Claim(
        "Option 1 tells users the most; option 2 loses CreateTime; option 3 knows the same as option 1 inside the broker",
        f"Option 2 keeps CreateTime of {percent(share(OPTION_2, 'CreateTime as made, in target'))}. Option 3's index has the"
        f" exact LogAppendTime of {percent(precision)} of the messages only, and is {off} off on average",
        verdict(share(OPTION_2, "CreateTime as made, in target") == 0, precision == 1),
    )
    return (
        "Mirror maker",
        cell(OPTION_1, "LogAppendTime is replaced, CreateTime kept", True, True),
        cell(OPTION_2, "LogAppendTime is replaced", False, True),
        cell(OPTION_3, "CreateTime is kept; LogAppendTime goes to the index", True, False),
        comparison,
        seen(CREATE),
        seen(APPEND) + "; with Tidelog's `create_time` handed on: "
        f"{percent(share(pipeline.HANDED_ON, 'CreateTime as made, in target'))}",
    )


def _retention(m: Measurements) -> tuple[Cell, ...]:
    one, two = retention_worst(m, OPTION_1), retention_worst(m, OPTION_2)
    drafted, late = retention_worst(m, DRAFTED, REPLICATED), retention_worst(m, LATE_TOO, REPLICATED)
    rebuilt, alone = retention_worst(m, REBUILT, REPLICATED), retention_worst(m, LATE_TOO, (replicas.ALONE,))
    before = retention_worst(m, "before (file times)")
    return (
        "Log retention",
        Claim("By the last message's LogAppendTime", str(one), verdict(one.either == 0)),
        Claim("As option 1", str(two), verdict(two == one)),
        Claim(
            "By the index's last entry, which followers must fetch; after a recovery, rebuilt times are wrong and close together",
            f"Rebuilt: {rebuilt}. Fetched with the message set as drafted: {drafted}; with entries that come later: {late}",
            verdict(rebuilt.either > 0, drafted.either == 0),
        ),
        Claim(
            f"Options 1 and 2 solve the problem with replication as it is; option 3 needs another protocol (before: {before})",
            f"Options 1 and 2: {one}. With the protocol option 3 still errs where no leader is left to fetch from: {alone}",
            verdict(one.either == two.either == 0, rebuilt.either > late.either),
        ),
        str(retention_worst(m, CREATE)),
        str(retention_worst(m, APPEND)),
    )


def _rolling(m: Measurements) -> tuple[Cell, ...]:
    def overdue(subject: str, roles: tuple[str, ...] = replicas.ROLES) -> str:
        worst = rolling_worst(m, subject, roles)
        return f"segments up to {show_millis(worst)} too long" if worst else "on time, as the leader's"

    one, two = rolling_worst(m, OPTION_1), rolling_worst(m, OPTION_2)
    fetched, rebuilt = rolling_worst(m, DRAFTED, REPLICATED), rolling_worst(m, REBUILT, REPLICATED)
    alone = (replicas.ALONE,)
    return (
        "Log rolling",
        Claim("By the first message's LogAppendTime", overdue(OPTION_1), verdict(one == 0)),
        Claim("As option 1", overdue(OPTION_2), verdict(two == one)),
        Claim(
            "By the index's first entry, which followers must fetch; wrong after a recovery",
            f"Rebuilt: {overdue(REBUILT, REPLICATED)}. Fetched: {overdue(DRAFTED, REPLICATED)}",
            verdict(rebuilt > 0, fetched == 0),
        ),
        Claim(
            "Options 1 and 2 solve it; option 3 does not without another protocol",
            f"Options 1 and 2: {overdue(OPTION_1)}. Option 3 with it, nobody to fetch from: {overdue(DRAFTED, alone)}",
            verdict(one == two == 0, rebuilt > 0),
        ),
        overdue(CREATE),
        overdue(APPEND),
    )


def _streams(m: Measurements) -> tuple[Cell, ...]:
    def wrong(subject: str) -> float:
        return m.value("windows", LATENCY, subject, "messages in the wrong window")

    def size(subject: str) -> float:
        return m.value("windows", LATENCY, subject, "bytes a message")

    def shown(subject: str) -> str:
        return f"{percent(wrong(subject))} in the wrong window"

    payload = size(pipeline.PAYLOAD) - size(OPTION_2)
    skewed = m.value("windows", observed.WRONG_CLOCKS, OPTION_1, "messages in the wrong window")
    append_skewed = m.value("windows", observed.WRONG_CLOCKS, OPTION_2, "messages in the wrong window")
    return (
        "Stream processing",
        Claim("CreateTime need not be in the payload", shown(OPTION_1), verdict(wrong(OPTION_1) == 0)),
        Claim(
            "Applications put CreateTime into the payload",
            f"{shown(OPTION_2)}; none with {payload:.0f} bytes more of payload"
            if wrong(pipeline.PAYLOAD) == 0
            else f"{shown(OPTION_2)}; {shown(pipeline.PAYLOAD)} with {payload:.0f} bytes more",
            verdict(wrong(OPTION_2) > 0, wrong(pipeline.PAYLOAD) == 0),
        ),
        Claim("CreateTime need not be in the payload", shown(OPTION_3), verdict(wrong(OPTION_3) == 0)),
        Claim(
            "A field spares each application a format of its own",
            f"Bytes a message: {size(OPTION_3):.0f} with the field, {size(pipeline.PAYLOAD):.0f} with option 2 and payload."
            f" Where 1 % of the clocks are ten minutes ahead, CreateTime puts {percent(skewed)} into the wrong window,"
            f" LogAppendTime {percent(append_skewed)}",
            verdict(size(OPTION_3) < size(pipeline.PAYLOAD)),
        ),
        shown(CREATE),
        f"{shown(APPEND)}; {percent(wrong(pipeline.HANDED_ON))} by `create_time`",
    )


def _latency(m: Measurements) -> tuple[Cell, ...]:
    def can(subject: str, what: str) -> bool:
        return m.value("latency", LATENCY, subject, f"{what} computable") == 1

    def error(subject: str, what: str) -> str:
        return show_millis(m.value("latency", LATENCY, subject, f"{what}, mean error"))

    both = ("end-to-end latency", "lag in time")

    def shown(subject: str) -> str:
        return "; ".join(
            f"{what}: {'' if can(subject, what) else 'from the other time, '}{error(subject, what)} off" for what in both
        )

    def cell(subject: str, claimed: str, end_to_end: bool, lag: bool) -> Claim:
        return Claim(claimed, shown(subject), verdict(can(subject, both[0]) == end_to_end, can(subject, both[1]) == lag))

    def hops(subject: str) -> int:
        return can(subject, "first hop") + can(subject, "second hop")

    numbers = {subject: sum(can(subject, what) for what in both) for subject in (OPTION_1, OPTION_2, OPTION_3)}
    return (
        "Latency measurement",
        cell(OPTION_1, "End-to-end latency and lag in time", True, True),
        cell(OPTION_2, "Lag in time", False, True),
        cell(OPTION_3, "End-to-end latency", True, False),
        Claim(
            "Option 1 tells users the most",
            "Computable of end-to-end latency and lag: "
            + "; ".join(f"{name}: {count}" for name, count in numbers.items())
            + ". Of two hops between clusters, brokers can time: "
            + "; ".join(f"{name}: {hops(name)}" for name in numbers),
            verdict(numbers[OPTION_1] > max(numbers[OPTION_2], numbers[OPTION_3])),
        ),
        shown(CREATE),
        shown(APPEND),
    )


def _search() -> tuple[Cell, ...]:
    return ("Search by timestamp", *["KIP-33's: see the chapters on indexes and use cases"] * 4, None, None)
