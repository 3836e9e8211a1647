"""A partition on a broker, in plain lists and loops: what the study's figures are checked against. Nothing of the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

NEVER = 2**62


@dataclass
class Part:
    """A segment: its first offset, and the timestamps and the clock of each of its messages."""

    base: int
    stamps: list[int] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)
    made: int = 0


@dataclass
class Outcome:
    gone: list[int]
    bases: list[int]
    sizes: list[int]
    """Messages that are there after each check."""


def rolls(rule: str, part: Part, stamp: int, clock: int, segment_ms: int) -> bool:
    """Whether a message begins a new segment."""
    if rule == "created" or (rule == "mixed" and part.stamps[0] < 0):
        return clock > part.made + segment_ms
    if rule in ("first", "mixed"):
        return stamp > part.stamps[0] + segment_ms
    if rule == "largest":
        return clock > max(part.stamps) + segment_ms
    return clock > part.stamps[0] + segment_ms


def cut(rule: str, stamps: list[int], clocks: list[int], segment_ms: int, made: int) -> list[int]:
    """Where segments begin, without retention."""
    parts: list[Part] = []
    for offset, (stamp, clock) in enumerate(zip(stamps, clocks, strict=True)):
        if not parts or rolls(rule, parts[-1], stamp, clock, segment_ms):
            parts.append(Part(offset, made=clock if parts else made))
        parts[-1].stamps.append(stamp)
        parts[-1].clocks.append(clock)
    return [part.base for part in parts]


def keep(
    arrivals: list[int],
    stamps: list[int],
    checks: list[int],
    segment_ms: int,
    retention_ms: int,
    *,
    rule: str = "first",
    by: str = "largest",
    ahead_ms: int = 0,
    copied_ms: int | None = None,
) -> Outcome:
    """Play appends and checks back; the broker's clock is `ahead_ms` ahead of the truth."""
    parts: list[Part] = []
    found = Outcome([NEVER] * len(stamps), [], [])
    waiting = list(range(len(stamps)))

    def append(offset: int, clock: int) -> None:
        if not parts or rolls(rule, parts[-1], stamps[offset], clock, segment_ms):
            parts.append(Part(offset, made=clock if found.bases else checks[0] - 30 * 60_000))
            found.bases.append(offset)
        parts[-1].stamps.append(stamps[offset])
        parts[-1].clocks.append(clock)

    for check in checks:
        while waiting and arrivals[waiting[0]] < check:
            offset = waiting.pop(0)
            append(offset, arrivals[offset] + ahead_ms)
        if copied_ms is not None and check >= copied_ms:
            there = [part.base + i for part in parts for i in range(len(part.stamps))]
            parts.clear()
            for offset in there:
                append(offset, copied_ms)
            copied_ms = None
        while parts:
            oldest = parts[0]
            age_from = {"largest": max(oldest.stamps), "last": oldest.stamps[-1], "file": oldest.clocks[-1]}.get(by, 0)
            if by == "mixed":
                age_from = max(oldest.stamps) if max(oldest.stamps) >= 0 else oldest.clocks[-1]
            if check + ahead_ms - age_from <= retention_ms:
                break
            for i in range(len(oldest.stamps)):
                found.gone[oldest.base + i] = check
            parts.pop(0)
        found.sizes.append(sum(len(part.stamps) for part in parts))
    return found
