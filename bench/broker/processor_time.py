"""Processor time of processes and their descendants, from /proc: a measure that is meaningful on a busy machine, too."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def own_seconds(pid: int) -> float:
    """Return the seconds that a process itself has used; 0.0 if there is no such process."""
    found = _stat(pid)
    return 0.0 if found is None else found[1]


def children_seconds(pid: int) -> float:
    """Return the seconds that a process's descendants have used, including those that ended and were waited for."""
    children: dict[int, list[int]] = {}
    used: dict[int, tuple[float, float]] = {}
    for entry in Path("/proc").iterdir():
        found = _stat(int(entry.name)) if entry.name.isdigit() else None
        if found is not None:
            parent, own, ended = found
            children.setdefault(parent, []).append(int(entry.name))
            used[int(entry.name)] = own, ended
    total = used.get(pid, (0.0, 0.0))[1]
    below = list(children.get(pid, ()))
    while below:
        child = below.pop()
        total += sum(used[child])
        below.extend(children.get(child, ()))
    return total


def _stat(pid: int) -> tuple[int, float, float] | None:
    """Return a process's parent, its seconds, and the seconds of its ended children; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    ticks = [int(field) for field in fields[11:15]]
    return int(fields[1]), sum(ticks[:2]) / _TICKS_PER_SECOND, sum(ticks[2:]) / _TICKS_PER_SECOND
