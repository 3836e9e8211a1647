"""Chapters with everything that a report can hold, texts that want escaping included."""

from __future__ import annotations

import math

from studies.chapter import Bytes, Chapter, Claim, Mark, Millis, Plot, Series, Table, Verdict
from studies.report.page import Facts
from studies.workload import DAY_MS, EPOCH_MS, HOUR_MS

FACTS = Facts(made_ms=1_763_769_600_000, tidelog="0.1.0", python="3.11.2", spark="4.0.1", cores=2, scale=1.0, seconds=181.4)

INDEXES = ("time index (KIP-33)", "minute index on LogAppendTime", "minute map on CreateTime", "16-byte offset index", "option 3")

CELLS = Table(
    "sample-cells",
    "Every kind of cell & <markup>",
    ("index", "entries", "on disk", "start-up", "precision", "exact", "what it gets wrong"),
    (
        (
            INDEXES[0],
            1_234_567,
            Bytes(3_628_800_000),
            Millis(90_000),
            0.001234,
            True,
            "nothing that `find_offset` does not repair",
        ),
        (INDEXES[1], 1440, Bytes(56), Millis(5), 1234.5, False, None),
        (INDEXES[2], None, Bytes(60_480_000), Millis(HOUR_MS + 1), math.inf, True, "<script>alert('x')</script>"),
    ),
    source="KIP-33, the table of costs",
    assumptions=("3,500 partitions & more", "seed 7"),
    notes=("`entries` are counted in the file.",),
)
CLAIMS = Table(
    "sample-claims",
    "Which timestamp serves which need",
    ("need", "option 1", "option 2"),
    (
        (
            "mirroring",
            Claim("time of the first broker is lost", "lost for 12,000 of 12,000 messages", Verdict.CONFIRMED),
            Claim("kept", "kept for 11,988 of 12,000", Verdict.PARTLY),
        ),
        (
            "retention",
            Claim("exact", "deleted 2 d 3 h too early", Verdict.REFUTED),
            Claim("depends on the operator", "-", Verdict.NOT_MEASURABLE),
        ),
    ),
    source="KIP-32, the table of options",
)
BARS = Plot(
    "sample-bars",
    "Size on disk",
    tuple(
        Series(f"{size} messages", INDEXES, ys)
        for size, ys in (("1 M", (96e3, 12e3, 17e3, 3.1e6, 0.0)), ("10 M", (9.6e5, 17280, 17280, 3.1e7, 12.0)))
    ),
    Mark.BARS,
    "index",
    "on disk, bytes",
    log_y=True,
    caption="A logarithmic axis: each line is 16 times the one before.",
)
SHORT_BARS = Plot(
    "sample-short",
    "Missed",
    (Series("", ("CreateTime", "LogAppendTime"), (12, 1534)),),
    Mark.BARS,
    "timestamp type",
    "messages missed",
)
HISTOGRAM = Plot(
    "sample-histogram",
    "How late",
    (Series("late", tuple(float(x) for x in range(0, 600, 20)), tuple(1000 * math.exp(-x / 100) for x in range(0, 600, 20))),),
    Mark.BARS,
    "latency, ms",
    "messages",
)
LINE = Plot(
    "sample-line",
    "Kept over time",
    tuple(
        Series(
            name,
            tuple(EPOCH_MS + n * HOUR_MS for n in range(0, 96, 4)),
            tuple(1e9 * (k + 1) + 3e8 * math.sin(n / 9 + k) for n in range(0, 96, 4)),
        )
        for k, name in enumerate(
            ("segment's create time (before)", "first message's timestamp", "largest timestamp", "first LogAppendTime")
        )
    ),
    Mark.LINE,
    "time",
    "size of the log, bytes",
    x_is_time=True,
)
STEPS = Plot(
    "sample-steps",
    "Segments over ten days",
    (Series("segments", tuple(EPOCH_MS + n * DAY_MS / 3 for n in range(30)), tuple(float(n % 7) for n in range(30))),),
    Mark.STEPS,
    "time",
    "segments",
    x_is_time=True,
)
POINTS = Plot(
    "sample-points",
    "Time a look-up takes",
    (
        Series("ours", tuple(10.0**n for n in range(2, 8)), tuple(3.0 * 2**n for n in range(2, 8))),
        Series("theirs", tuple(10.0**n for n in range(2, 8)), tuple(5.0 * 3**n for n in range(2, 8))),
    ),
    Mark.POINTS,
    "messages",
    "time, ms",
    log_x=True,
    log_y=True,
)

FIRST = Chapter(
    "first",
    "Which index",
    "KIP-33 weighs indexes & prefers the `time index`.",
    "It is the smallest that is exact: 12 bytes for 4 KiB of log.",
    (CELLS, BARS, SHORT_BARS, HISTOGRAM, LINE),
    assumptions=("one: seed 1, 12,000 messages of 100 bytes", "two: seed 2"),
    findings=("The minute index is larger than it says.", "<b>not bold</b>"),
)
SECOND = Chapter("second", "Which timestamp", "Which?", "That one.", (CLAIMS, STEPS, POINTS))
CHAPTERS = (FIRST, SECOND)
