"""Combines pieces of work into tasks, the largest first.

A task costs Spark milliseconds, whatever it does, so small segments share one. A large one has its own task and goes first, so
that no worker begins it when the others are done. There are several tasks for each parallel slot, if there are enough pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Piece = TypeVar("Piece")

TASK_BYTES = 64 * 1024 * 1024
"""The most bytes in a task that has several pieces."""
TASK_PIECES = 256
TASKS_AT_ONCE = 4
"""At least this many tasks for each parallel slot."""


def bundle(pieces: Sequence[Piece], size_bytes: Callable[[Piece], int], parallelism: int) -> list[list[Piece]]:
    """Distribute all pieces over tasks. Tasks are in descending order of size, and so are the pieces of each task."""
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
