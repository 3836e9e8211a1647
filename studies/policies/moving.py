"""Retention on the real engine after a partition moves to another broker, and after its format changes.

| part | measured |
|---|---|
| `reassignment` | messages of three days; then another broker fetches all of them, and retention continues there |
| `migration` | format 0.9.0 until the afternoon of day 2, then today's; an hour's latency, so that file times differ |

Format 0.9.0 is the format before KIP-32. It has no timestamps, so that the file's last modification counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from studies.case import Measurement
from studies.policies import broker
from studies.policies.lateness import lateness
from studies.policies.rolling_rules import RollingRule, segment_starts
from studies.policies.scenarios import CHECK_MS, END_MS, RETENTION_MS, SEGMENT_MS, scenario
from studies.workload import DAY_MS, EPOCH_MS, HOUR_MS, Int64s, Latency, Messages, generate
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME

REASSIGNMENT, MIGRATION = "reassignment", "migration"

MOVED_MS = EPOCH_MS + 3 * DAY_MS
NO_TIMESTAMPS = "format 0.9.0, file times"
UPGRADED_AFTER_MS = EPOCH_MS + DAY_MS + 12 * HOUR_MS

ONLY_OLD, MIXED, ONLY_NEW = "only format 0.9.0", "both formats", "only today's format"


def measure_reassignment(scale: float, work_dir: Path) -> Iterator[Measurement]:
    """Move a partition with each timestamp type, and without timestamps; compare with a broker that keeps it."""
    case = "copied on day 4"
    whole, _ = scenario("small latency").messages(scale)
    messages = whole.part(0, int(np.searchsorted(whole.arrival_ms, MOVED_MS)))
    for subject, kind, old_until in (
        (CREATE_TIME, CREATE_TIME, 0),
        (LOG_APPEND_TIME, LOG_APPEND_TIME, 0),
        (NO_TIMESTAMPS, CREATE_TIME, broker.NEVER),
    ):
        folder = work_dir / subject
        stayed = broker.run(folder / "stays", messages, kind, old_format_until_ms=old_until)
        broker.run(folder / "moves", messages, kind, until_ms=MOVED_MS, old_format_until_ms=old_until)
        starts, checks = broker.keep_copy(folder / "moves", folder / "copy", MOVED_MS)
        gone = np.where(stayed.gone_ms <= MOVED_MS, stayed.gone_ms, _gone(checks, len(messages)))
        for where, gone_ms in (("stays", stayed.gone_ms), ("moves", gone)):
            found = lateness(messages.made_ms, messages.arrival_ms, gone_ms)
            for name in ("early", "long", "long_max_ms", "left", "off_ms"):
                unit = "ms" if name.endswith("_ms") else "messages"
                yield Measurement(REASSIGNMENT, case, f"{subject}, {where}", name, float(getattr(found, name)), unit)
        there = int((stayed.gone_ms > MOVED_MS).sum())
        moved = stayed.starts[stayed.starts > len(messages) - there]
        later = (np.minimum(gone, END_MS) - np.minimum(stayed.gone_ms, END_MS))[len(messages) - there :]
        yield Measurement(REASSIGNMENT, case, f"{subject}, moves", "goes later by, at most", float(later.max()), "ms")
        yield Measurement(REASSIGNMENT, case, f"{subject}, stays", "segments", len(moved) + 1, "segments")
        yield Measurement(REASSIGNMENT, case, f"{subject}, moves", "segments", len(starts), "segments")


def _gone(checks: list[tuple[int, int]], count: int) -> Int64s:
    """Return when each offset was deleted, from the log start at each check."""
    gone = np.full(count, broker.NEVER, np.int64)
    for check_ms, start in reversed(checks):
        gone[:start] = check_ms
    return gone


def hour_late(scale: float) -> Messages:
    """Return the messages of the migration."""
    return generate(
        dataclasses.replace(scenario("small latency").workload(scale), latency=Latency("an hour", smallest_ms=HOUR_MS))
    )


def upgrade_time(messages: Messages) -> int:
    """Return a time (ms) for the change of format: in the afternoon of day 2, when a segment has received its first message.

    The segment receives more than one message, so that it contains both formats.
    """
    starts = segment_starts(RollingRule.CREATE_TIME_OF_SEGMENT, messages.create_ms, messages.arrival_ms, SEGMENT_MS, EPOCH_MS)
    several = starts[:-1][np.diff(starts) > 1]
    begun = messages.arrival_ms[several]
    return int(begun[np.searchsorted(begun, UPGRADED_AFTER_MS)]) + 1


def measure_migration(scale: float, work_dir: Path) -> Iterator[Measurement]:
    """Change the format in the middle of a segment; record for each kind of segment which time its deletion followed."""
    case = "format 0.9.0 to today's"
    messages = hour_late(scale)
    upgraded_ms = upgrade_time(messages)
    kept = broker.run(work_dir, messages, CREATE_TIME, old_format_until_ms=upgraded_ms)
    ends = np.append(kept.starts[1:], len(messages))
    rows: dict[str, list[tuple[int, int]]] = {ONLY_OLD: [], MIXED: [], ONLY_NEW: []}
    lived: dict[str, list[int]] = {ONLY_OLD: [], MIXED: [], ONLY_NEW: []}
    for start, end in zip(kept.starts.tolist(), ends.tolist(), strict=True):
        stamps = kept.stamps_ms[start:end]
        kind = ONLY_OLD if (stamps < 0).all() else MIXED if (stamps < 0).any() else ONLY_NEW
        gone = int(kept.gone_ms[start])
        rows[kind].append((gone - int(stamps.max()) if stamps.max() >= 0 else -1, gone - int(kept.clock_ms[end - 1])))
        if end < len(messages):
            lived[kind].append(int(kept.clock_ms[end] - kept.clock_ms[start]))
    for kind, found in rows.items():
        yield Measurement(MIGRATION, case, kind, "segments", len(found), "segments")
        for column, name in enumerate(("largest timestamp", "last modification")):
            after = np.array([one[column] for one in found], np.int64)
            known = after[after >= 0]
            # A segment is deleted at the first check after retention.ms. (Earlier segments are deleted first.)
            fits = int(((known > RETENTION_MS) & (known <= RETENTION_MS + CHECK_MS)).sum())
            yield Measurement(MIGRATION, case, kind, f"goes by {name}", fits, "segments")
            if len(known):
                yield Measurement(MIGRATION, case, kind, f"mean time from {name}", float(known.mean()), "ms")
        if lived[kind] and kind != ONLY_NEW:
            rolled = np.array(lived[kind], np.int64)
            yield Measurement(MIGRATION, case, kind, "rolled by the clock", int((rolled > SEGMENT_MS).sum()), "segments")
