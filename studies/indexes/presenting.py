"""The chapter: question, tables, plots and results. Numbers in sentences come from the measurements."""

from __future__ import annotations

from collections.abc import Iterator

from studies.case import Measurements
from studies.chapter import Chapter
from studies.indexes import behaviour, density, plots, replication, volume
from studies.indexes.design_tables import guarantees, mistakes, side_by_side
from studies.indexes.figure_tables import day, densities, figures, granularity
from studies.indexes.history_tables import carried, consequences, starts, truncation
from studies.indexes.sentence_tables import sentences
from studies.indexes.side_by_side import (
    CLOCK_SET_BACK,
    HALF_LATE,
    INTERVAL_BYTES,
    MINUTE_INDEX,
    MINUTE_MAP,
    NAIVE_MAP,
    PART,
    SEGMENT_BYTES,
    SMALL_SEGMENT_BYTES,
    TIME_INDEX,
    WIDE,
    WIDE_OWN,
    workloads,
)
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME

QUESTION = (
    "Finding a message by time needs an index. KIP-33 accepted one that notes the largest timestamp so far whenever the "
    "offset index "
    "gets an entry. It weighed four others: a minute index on LogAppendTime, a map of minutes on CreateTime, a timestamp in "
    "each entry "
    "of the offset index; and KIP-32's option 3 kept append times in an index only, sent to followers with the data. What "
    "does each cost "
    "on the same log, how well does it answer, and what does it get wrong?"
)


def present(found: Measurements) -> Chapter:
    """Return the chapter with the results."""
    designs = list(side_by_side(found))
    return Chapter(
        "which-index",
        "Which index",
        QUESTION,
        answer(found),
        (
            plots.sizes(found),
            plots.staircase(found),
            sentences(found),
            *designs,
            mistakes(found),
            guarantees(found),
            granularity(found),
            figures(found),
            day(found),
            densities(found),
            plots.work(found),
            truncation(found),
            starts(found),
            carried(found),
            plots.rebuilt(found),
            consequences(found),
        ),
        assumptions=tuple(assumptions(found)),
        findings=tuple(findings(found)),
    )


def answer(found: Measurements) -> str:
    """Return the result in a paragraph."""
    cases = found.cases(PART)
    asked = sum(found.value(PART, case, TIME_INDEX, "look-ups") for case in cases)
    wrong = sum(found.value(PART, case, TIME_INDEX, "look-up: inexact answers") for case in cases)
    in_order, wrong_clocks = f"in order, {LOG_APPEND_TIME}", f"wrong clocks, {CREATE_TIME}"

    def times(metric: str) -> float:
        return found.value(PART, in_order, MINUTE_INDEX, metric) / found.value(PART, in_order, TIME_INDEX, metric)

    read = "look-up: log bytes, mean"
    return (
        f"The accepted index answered {asked - wrong:,.0f} of {asked:,.0f} look-ups exactly, on logs in order and out of "
        "order, and "
        f"comes back the same after a crash. The minute index takes {1 / times('bytes'):.0f} times fewer bytes and reads "
        f"{times(read):.1f} times more log; it is right where times never go back, and only there. The minute map is right, "
        "but must be held and loaded whole, and every record has to be looked into. The 16-byte index is smaller than the "
        "two files "
        "together, and right if its time is the largest so far, which the text does not say. Option 3 cannot be rebuilt, "
        "cannot be searched to the message, and as drawn does not even reach the followers whole. The accepted index has "
        "one weakness: a "
        "few clocks an hour ahead thin it out, and a look-up then reads "
        f"{found.value(PART, wrong_clocks, TIME_INDEX, read):,.0f} bytes "
        f"of log instead of {found.value(PART, in_order, TIME_INDEX, read):,.0f}."
    )


def findings(found: Measurements) -> Iterator[str]:
    """Yield the results that contradict the documents or are unexpected."""
    in_order, wrong_clocks = f"in order, {CREATE_TIME}", f"wrong clocks, {CREATE_TIME}"

    def value(case: str, subject: str, metric: str) -> float:
        return found.value(PART, case, subject, metric)

    both, wide = (value(in_order, subject, "bytes, both") for subject in (TIME_INDEX, WIDE))
    yield (
        "The 16-byte offset index was rejected for its memory: 32 instead of 16 GB. The accepted design takes "
        f"{both / wide:.2f} times as "
        "much as that on a log in order (8 + 12 bytes for each entry against 16). It is smaller only where entries are left "
        "out, because "
        "the largest time did not grow."
    )
    yield (
        "The documents do not say what the 16-byte entry's timestamp is. Taken as the message's own it misses "
        f"{value(wrong_clocks, WIDE_OWN, 'look-up: records missed'):,.0f} records in "
        f"{value(wrong_clocks, WIDE_OWN, 'look-ups'):.0f} look-ups with wrong clocks; as the largest so far, none. "
        "It has no entry for the roll, so each segment's end is walked whenever its largest time is asked for."
    )
    entries, read = "entries", "look-up: log bytes, mean"
    yield (
        f"Under wrong clocks the accepted index has {value(wrong_clocks, TIME_INDEX, entries):,.0f} entries instead of "
        f"{value(in_order, TIME_INDEX, entries):,.0f}: after one message of the future no time is the largest for an hour. "
        "A look-up reads "
        f"{value(wrong_clocks, TIME_INDEX, read):,.0f} bytes of log, the 16-byte index "
        f"{value(wrong_clocks, WIDE, read):,.0f}, because "
        "that goes on noting where the largest time stood still."
    )
    yield (
        f"A minute map must be searched through every later minute. Searched at the closest one it misses "
        f"{value(wrong_clocks, NAIVE_MAP, 'look-up: records missed'):,.0f} records in "
        f"{value(wrong_clocks, NAIVE_MAP, 'look-ups'):.0f} look-ups. It holds first offsets, not largest times, so that "
        "retention would "
        f"read {value(wrong_clocks, MINUTE_MAP, 'start: log bytes'):,.0f} bytes of log to know them exactly."
    )
    missed = value(CLOCK_SET_BACK, MINUTE_INDEX, "look-up: records missed")
    yield (
        "The minute index trusts that append times never go back. With Kafka's plain clock set back by five minutes it "
        f"misses {missed:,.0f} "
        "records; with KIP-32's rule (the later of now and the last append) there is nothing to miss."
    )
    yield (
        "3.4 GB and 57 MB are 3.38 GiB and 57.7 MiB: the arithmetic holds in units of 1,024. A third more handles does not: "
        "each segment "
        "had two files and has three, half as many again, a third of the new number. And a live index holds descriptors or "
        "maps only while "
        "its segment is active or read."
    )
    history = "caught up"
    without = found.value(replication.PART, history, "replica", "segments without a last entry")
    early = found.value(replication.PART, history, "replica", "deleted too early, at most")
    yield (
        "Option 3's response carries the entries of its message set. The entry for a segment's last message is made "
        "when the segment rolls, after followers that keep up have fetched that message: they never get it "
        f"({without:.0f} segments of this run), and delete up to {early / 1000:,.0f} s too early. Requirement 3 needs "
        "another protocol than "
        "the one drawn."
    )
    late = found.value(replication.PART, replication.PLOTTED, "replica", "kept too long, at most")
    yield (
        "Rebuilt locally, option 3's index says that everything came at the rebuild: segments stay up to "
        f"{late / 3_600_000:.1f} h too long, "
        "and then go all at once. If the machine's clock is behind at that moment, they go too early instead. When both "
        "replicas crash, the "
        "wrong times are agreed on."
    )


def assumptions(found: Measurements) -> Iterator[str]:
    """Yield every parameter of the generated logs."""
    scale = found.value(PART, found.cases(PART)[0], "log", "scale")
    for workload in (*workloads(scale).values(), density.workload(scale), behaviour.workload(scale), replication.workload(scale)):
        yield workload.describe()
    for rate in volume.RATES:
        yield volume.workload(rate, scale).describe()
    yield (
        f"side by side: segment.bytes {SEGMENT_BYTES:,} (clock set back: {SMALL_SEGMENT_BYTES:,}), index.interval.bytes "
        f"{INTERVAL_BYTES:,}, batches of 4; late means {HALF_LATE.late_ms:,} ms; target times seeded with 79, half of them "
        "records' own"
    )
    yield (
        "the rejected designs are this project's reading of the texts: what an entry points to, and when a search may pass a "
        "segment over, is written at the head of `builders` and `readers`"
    )
    yield (
        "option 3 is simulated: messages have sizes but no bytes; a fetch response holds one partition and never crosses "
        "a segment"
    )
