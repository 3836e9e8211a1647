"""Measures the lag of all groups, on brokers or in a data folder, in tasks; summarizes each group.

| source | a task covers | rates come from |
|---|---|---|
| brokers | groups whose commits are in the same partition of ``__consumer_offsets`` | that partition, read once per task |
| a data folder | all groups in a partition of ``__consumer_offsets`` | that partition, read once per task |

Tasks can run one by one, on threads (`measure_all`), or in a Spark job. Groups in which Tidelog's writers store their positions
(`groups.positions`) have no lag: they are listed separately, and do not count as faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tidelog.client.consumer_groups.group_lag import GroupLag
from tidelog.clock import Clock
from tidelog.errors import NotFoundError, TidelogError
from tidelog.groups.lag import CatchUp, PartitionLag
from tidelog.groups.positions import are_positions
from tidelog.model import Isolation
from tidelog.near_names import did_you_mean
from tidelog.ordered_map import ordered_map
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.sources.groups import GroupBundle
from tidelog.sources.opening import kind_of, open_source
from tidelog.sources.source import Source

THREADS = 8

SUMMARY = (
    "group",
    "state",
    "members",
    "partitions",
    "lag",
    "lag_ms",
    "most_behind",
    "catches_up",
    "time_to_end_ms",
    "lost",
    "type",
)

_WORST = (CatchUp.NEVER, CatchUp.UNKNOWN, CatchUp.IN, CatchUp.AT_END)
"""The states of a partition, worst first. A group as a whole has the state of its worst partition."""


class LagTask(NamedTuple):
    """A source, and the groups in it that are measured together."""

    place: str
    bundle: GroupBundle
    isolation: Isolation
    window_ms: int
    clock: Clock


def plan(place: str, wanted: tuple[str, ...] | None, isolation: Isolation, window_ms: int, clock: Clock) -> list[LagTask]:
    """Return the tasks that measure all groups, or the requested groups. Raises BrokerUnreachableError, BrokerError,
    DataDirNotFoundError.
    """
    with open_source(place) as source:
        return [LagTask(place, bundle, isolation, window_ms, clock) for bundle in source.groups().bundles(wanted)]


def measure(task: LagTask) -> Iterator[GroupLag]:
    """Yield the lag of each group of a task, leaving out groups that do not exist. Raises the errors of `Source`."""
    with open_source(task.place) as source:
        yield from source.groups().lags(task.bundle, task.clock, task.isolation, task.window_ms)


def measure_all(tasks: Sequence[LagTask]) -> list[GroupLag]:
    """Run tasks on a few threads, because tasks mostly wait for brokers. Raises what `measure` raises."""
    found = ordered_map(lambda task: list(measure(task)), tasks, min(THREADS, len(tasks)))
    return [one for together in found for one in together]


def missing_of(place: str, wanted: tuple[str, ...] | None, found: Sequence[GroupLag]) -> tuple[MissingOffsets, ...]:
    """Return a folder's missing commits and topic records that could change the results. For brokers the result is empty."""
    commits: Sequence[MissingOffsets] = ()
    if kind_of(place).reads_files:
        with open_source(place) as source:
            commits = source.groups().missing_commits(wanted)
    return tuple(dict.fromkeys([*commits, *(missing for one in found for missing in one.missing)]))


def check_all_there(found: Sequence[GroupLag], wanted: tuple[str, ...] | None, place: str) -> None:
    """Raise NotFoundError if a group that was requested by name is not among the results `found`."""
    missing = set(wanted or ()) - {one.description.group for one in found}
    if missing:
        with open_source(place) as source:
            raise no_such_group(min(missing), source)


def check_exist(wanted: Sequence[str], place: str) -> None:
    """Raise NotFoundError if a requested group does not exist. Call this before measuring."""
    if wanted:
        with open_source(place) as source:
            missing = set(wanted) - {one.group for one in source.groups().list()}
            if missing:
                raise no_such_group(min(missing), source)


def no_such_group(group: str, source: Source) -> NotFoundError:
    """Return the error for a group that a source does not have. The error suggests similar names."""
    near = ""
    with suppress(TidelogError):  # This request only looks for a hint: its error must not replace the original error.
        near = did_you_mean(group, [one.group for one in source.groups().list()], most=3)
    return NotFoundError(f"there is no group {group!r}{near}", path=source.address)


def keeps_positions(found: GroupLag) -> bool:
    """Whether one of Tidelog's writers stores its positions in the group. Such a group has no lag."""
    return not found.description.members and are_positions(
        one.metadata for one in found.partitions if one.committed_offset is not None
    )


def summary_rows(found: Sequence[GroupLag]) -> list[tuple[Any, ...]]:
    """Return a row of `SUMMARY` for each group, ordered by lag in time, then in records: the largest first, unknown lags last."""
    return sorted(map(_summary, found), key=lambda row: (-1 if row[5] is None else row[5], row[4] or 0), reverse=True)


def _summary(found: GroupLag) -> tuple[Any, ...]:
    head = (found.description.group, found.description.state, found.description.member_count, len(found.partitions))
    known = [] if keeps_positions(found) else [one for one in found.partitions if one.lag is not None]
    if not known:
        return (*head, *(None,) * 5, 0, found.description.type)
    worst = max(known, key=_behind)
    catches_up = min((one.time_to_end.catch_up for one in known), key=_WORST.index)
    times = [one.time_to_end.time_ms or 0 for one in known]
    return (
        *(*head, sum(one.lag or 0 for one in known), worst.lag_ms),
        f"{worst.topic}-{worst.partition}" if worst.lag else None,
        *(catches_up.value, max(times) if catches_up in (CatchUp.IN, CatchUp.AT_END) else None),
        sum(one.lost for one in known),
        found.description.type,
    )


def _behind(one: PartitionLag) -> tuple[int, int]:
    return -1 if one.lag_ms is None else one.lag_ms, one.lag or 0


def is_fault(found: GroupLag, max_lag_ms: int | None) -> bool:
    """Whether a group's lag exceeds the limit in a partition, or the group has lost offsets in a partition. Always False without
    a limit, and for a group that stores a writer's positions.
    """
    if max_lag_ms is None or keeps_positions(found):
        return False
    return any(one.lost or (one.lag_ms or 0) > max_lag_ms for one in found.partitions)
