"""Tables of the documents' figures, recomputed from their assumptions and compared with measured ones; bytes per day; density."""

from __future__ import annotations

from functools import partial

from studies.case import Measurements
from studies.chapter import Bytes, Cell, Claim, Table, Verdict
from studies.indexes import arithmetic, density, volume
from studies.indexes.arithmetic import GB, GIB, KIB, MB, MIB, PARTITIONS
from studies.indexes.side_by_side import MINUTE_INDEX, MINUTE_MAP, PART, SECOND_INDEX, TIME_INDEX, WIDE
from studies.indexes.volume import OFFSET_INDEX
from tidelog.config import CREATE_TIME

BUSY, MIDDLE = "ten entries a second", "an entry a second"
SCALED = f"measured: the bytes of one partition, scaled to a day and to {PARTITIONS:,} partitions that all have its rate"


def _in_units(value: float) -> str:
    if value >= GB:
        return f"{value / GB:.2f} GB ({value / GIB:.2f} GiB)"
    return f"{value / MB:.1f} MB ({value / MIB:.1f} MiB)"


def _matches(value: float, claimed: float, unit: float) -> Verdict:
    """Return whether a figure equals the claimed one in a unit, rounded or truncated."""
    return Verdict.CONFIRMED if claimed in (round(value / unit, 1), int(value / unit)) else Verdict.REFUTED


def granularity(found: Measurements) -> Table:
    """Return KIP-33's table of memory by granularity."""
    rows: list[tuple[Cell, ...]] = []
    for name, entries, subject, claimed, figure, unit in (
        ("second", arithmetic.SECONDS_A_DAY, SECOND_INDEX, "3.4 GB", 3.4, GIB),
        ("Minute", arithmetic.MINUTES_A_DAY, MINUTE_INDEX, "57 MB", 57, MIB),
    ):
        computed = arithmetic.entries_for_a_day(PARTITIONS, entries)
        rows.append(
            (
                name,
                entries,
                Claim(claimed, f"{_in_units(computed)} by its own arithmetic", _matches(computed, figure, unit)),
                Bytes(_scaled(found, BUSY, subject)),
                Bytes(_scaled(found, MIDDLE, subject)),
                Bytes(_scaled(found, "one message in ten seconds", subject)),
                Bytes(_scaled(found, BUSY, TIME_INDEX)),
                Bytes(_scaled(found, MIDDLE, TIME_INDEX)),
                Bytes(_scaled(found, "one message in ten seconds", TIME_INDEX)),
            )
        )
    return Table(
        "which-index-granularity",
        "Memory for a day by granularity, a broker with 3,500 partitions",
        (
            "Granularity",
            "Entries a day",
            "Claimed",
            f"Measured, {BUSY}",
            f"… {MIDDLE}",
            "… a message in ten seconds",
            f"Accepted index, {BUSY}",
            f"… {MIDDLE}",
            "… a message in ten seconds",
        ),
        tuple(rows),
        source="KIP-33, rejected option 1, table by granularity; the same in its earlier version",
        assumptions=("12 bytes an entry", SCALED),
        notes=(
            "The text's units are powers of 1,024: 3.63e9 bytes are its 3.4 GB, 60.5e6 bytes its 57 MB (57.7, cut).",
            "The claim supposes an entry in every second. A log brings one only after index.interval.bytes, so that a slow "
            "log has "
            "fewer, and the accepted index is bounded by the log's bytes where the minute index is bounded by the clock.",
        ),
    )


def _scaled(found: Measurements, rate: str, subject: str) -> float:
    return found.value(volume.PART, rate, subject, "bytes a day") * PARTITIONS


def day(found: Measurements) -> Table:
    """Return the bytes of index per day and partition."""
    subjects = (OFFSET_INDEX, TIME_INDEX, SECOND_INDEX, MINUTE_INDEX, MINUTE_MAP, WIDE)
    rows: list[tuple[Cell, ...]] = []
    for rate in found.cases(volume.PART):
        log = found.value(volume.PART, rate, "log", "bytes a day")
        rows.append(
            (
                rate,
                Bytes(log),
                *(Bytes(found.value(volume.PART, rate, subject, "bytes a day")) for subject in subjects),
                Bytes(_scaled(found, rate, OFFSET_INDEX) + _scaled(found, rate, TIME_INDEX)),
                Bytes(_scaled(found, rate, WIDE)),
            )
        )
    return Table(
        "which-index-day",
        "Bytes of index for a day of one partition",
        ("Rate", "Log", *subjects, "Offset and time index, 3,500 partitions", "16-byte index, 3,500 partitions"),
        tuple(rows),
        assumptions=(SCALED, "index.interval.bytes 4,096; messages of 4,100 bytes, each its own batch, or of 1,000 bytes"),
    )


def figures(found: Measurements) -> Table:
    """Return the other figures."""
    rows: list[tuple[Cell, ...]] = []
    full = arithmetic.full_index(GIB, 4 * KIB)
    dense = density.interval_name(4 * KIB)
    density_case = found.cases(density.PART)[0]
    log_bytes = found.value(density.PART, density_case, dense, "log bytes")
    measured = found.value(density.PART, density_case, dense, "bytes") / log_bytes * GIB
    rows.append(
        (
            "Time index of a 1 GB segment at 4 KB intervals",
            "1 GiB / 4 KiB × 12 B",
            Claim("3 MB", _in_units(full), _matches(full, 3, MIB)),
            f"{_in_units(measured)} for a GiB, {density_case}",
        )
    )
    in_order = f"in order, {CREATE_TIME}"
    offset = found.value(PART, in_order, "log", "offset index bytes")
    time, wide = (found.value(PART, in_order, subject, "bytes") for subject in (TIME_INDEX, WIDE))
    rows.append(
        (
            "A time index entry against an offset index entry",
            "12 B / 8 B",
            Claim("1.5 times", f"{arithmetic.TIME_ENTRY_BYTES / arithmetic.OFFSET_ENTRY_BYTES:g} times", Verdict.CONFIRMED),
            f"the files: {time / offset:.3f} times, {in_order}",
        )
    )
    widened = arithmetic.widened(16 * GB)
    rows.append(
        (
            "Indexes of 3,500 partitions with 16-byte entries",
            "16 GB / 8 B × 16 B",
            Claim("32 GB", _in_units(widened), Verdict.CONFIRMED if widened == 32 * GB else Verdict.REFUTED),
            f"{wide / offset:.3f} times the offset index, {in_order}",
        )
    )
    together = arithmetic.with_time_index(16 * GB)
    rows.append(
        (
            "The same broker with the accepted design",
            "16 GB / 8 B × (8 + 12) B, at most",
            "not told",
            f"{_in_units(together)} at most; measured {(offset + time) / offset:.3f} times, {in_order}",
        )
    )
    behind = arithmetic.log_bytes_behind(16 * GB, 4 * KIB)
    rows.append(
        (
            "The log behind 16 GB of offset index",
            "16 GB / 8 B × 4 KiB",
            "not told",
            f"{behind / 10**12:.1f} TB, {behind / PARTITIONS / GB:.1f} GB a partition; or the room of "
            f"{16 * GB / (10 * MIB):,.0f} active indexes of 10 MiB",
        )
    )
    rate = found.cases(volume.PART)[0]
    before = int(found.value(volume.PART, rate, "files", ".log for each segment"))
    before += int(found.value(volume.PART, rate, "files", ".index for each segment"))
    added = int(found.value(volume.PART, rate, "files", ".timeindex for each segment"))
    grown = arithmetic.more_files(before, added)
    open_before = sum(found.value(volume.PART, rate, "files", f"open {suffix}") for suffix in (".log", ".index"))
    open_added = found.value(volume.PART, rate, "files", "open .timeindex")
    rows.append(
        (
            "Open file handles",
            f"{before} files a segment, {added} more",
            Claim("increase by about 1/3", f"+{grown:.0%}: a third of the handles there are then", Verdict.REFUTED),
            f"active segment: {open_before:.0f} descriptors, and {open_added:.0f} for the time index; a closed one needs none",
        )
    )
    preallocated = found.value(volume.PART, rate, "files", "preallocated .timeindex")
    used = found.value(volume.PART, BUSY, TIME_INDEX, "bytes")
    rows.append(
        (
            "Size of an active time index",
            "segment.index.bytes, in whole entries",
            Claim("as the offset index", f"{preallocated:,.0f} bytes", Verdict.CONFIRMED),
            f"{used:,.0f} bytes of it used, {BUSY}; 3,500 of them map {_in_units(preallocated * PARTITIONS)}, mostly holes",
        )
    )
    return Table(
        "which-index-figures",
        "The documents' figures, recomputed and measured",
        ("Figure", "Assumption", "Claimed, and by its own arithmetic", "Measured here"),
        tuple(rows),
        source="KIP-33: public interfaces, compatibility, rejected alternatives",
        notes=("What Kafka itself holds open with and without a time index was counted once, and stands in docs/benchmarks.md.",),
    )


def densities(found: Measurements) -> Table:
    """Return the effects of index.interval.bytes and batch sizes."""
    rows: list[tuple[Cell, ...]] = []
    for case in found.cases(density.PART):
        for interval in density.INTERVALS:
            subject = density.interval_name(interval)
            value = partial(found.value, density.PART, case, subject)
            within = value("entries") <= value("bound")
            exact = value("inexact answers") == 0
            rows.append(
                (
                    case,
                    Bytes(interval),
                    Bytes(value("mean batch")),
                    Claim(
                        f"at most {value('bound'):.0f}",
                        f"{value('entries'):,.0f}",
                        Verdict.CONFIRMED if within else Verdict.REFUTED,
                        "index.interval.bytes bounds the density of entries",
                    ),
                    Claim(
                        "as exact",
                        f"{value('inexact answers'):.0f} of {value('look-ups'):.0f} inexact",
                        Verdict.CONFIRMED if exact else Verdict.REFUTED,
                        "the density changes the work of a look-up, not its answer",
                    ),
                    Bytes(value("log bytes a look-up, mean")),
                    Bytes(value("log bytes a look-up, p99")),
                    value("records before the answer, mean"),
                )
            )
    return Table(
        "which-index-density",
        "How dense the accepted index is, and what that changes",
        (
            "Batches",
            "index.interval.bytes",
            "Mean batch",
            "Entries",
            "Answers",
            "Log read a look-up",
            "… 99 of 100",
            "Records read before the answer",
        ),
        tuple(rows),
        source="KIP-33, time index format: the interval bounds the density; search: the density changes the work, not the answer",
        assumptions=("bound: bytes of log / interval, and one more entry for each segment, written when it rolls",),
        notes=("Batches larger than the interval bring one entry each, however small the interval.",),
    )
