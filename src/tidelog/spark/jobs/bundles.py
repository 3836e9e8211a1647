"""Combines pieces of work into tasks, the largest first.

Every task costs Spark some milliseconds, so small segments share a task. A large segment has its own task. Large tasks go first,
so that no worker starts one when the other workers are done. If there are enough pieces, there are several tasks for each
parallel slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Piece = TypeVar("Piece")

TASK_BYTES = 64 * 1024 * 1024
"""The most bytes in a task that has several pieces."""
TASK_PIECES = 256
TASKS_AT_ONCE = 4
"""There are at least this many tasks for each parallel slot, if there are enough pieces."""


def bundle(pieces: Sequence[Piece], size_bytes: Callable[[Piece], int], parallelism: int) -> list[list[Piece]]:
    """Distribute the pieces over tasks, and return the pieces of each task. Tasks are in descending order of size, and so are the
    pieces of each task.
    """
    ordered = sorted(pieces, key=size_bytes, reverse=True)
    limit = min(TASK_BYTES, sum(map(size_bytes, ordered)) // (TASKS_AT_ONCE * max(1, parallelism)))
    most_pieces = max(1, min(TASK_PIECES, -(-len(ordered) // (TASKS_AT_ONCE * max(1, parallelism)))))
    tasks: list[list[Piece]] = []
    filled = 0
    for piece in ordered:
        size = size_bytes(piece)
        if not tasks or filled + size > limit or len(tasks[-1]) >= most_pieces:
            tasks.append([])
            filled = 0
        tasks[-1].append(piece)
        filled += size
    return tasks
