"""Runs `tidelog` with a wall clock that a test can set while it runs:

    python -m tests.kafka.shifted_clock FILE serve --config server.properties

FILE has the milliseconds (eight bytes) that are added to the machine's clock. Its steady clock stays as it is, as when somebody
sets the time of a machine.
"""

from __future__ import annotations

import mmap
import sys
import time
from pathlib import Path
from struct import Struct

SHIFT = Struct("<q")


class ShiftedClock:
    """The offset of the clock that a test sets, in milliseconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(0)

    def set(self, shift_ms: int) -> None:
        """Set the wall clock ahead of the machine's clock (behind it, if negative)."""
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.write(SHIFT.pack(shift_ms))

    @property
    def arguments(self) -> list[str]:
        """Python's arguments in place of ``-m tidelog``."""
        return ["-m", "tests.kafka.shifted_clock", str(self.path)]


def main(path: str, *arguments: str) -> None:
    """Run the command with that clock."""
    with Path(path).open("rb") as file:
        shift = mmap.mmap(file.fileno(), SHIFT.size, access=mmap.ACCESS_READ)
    real_ns = time.time_ns

    def time_ns() -> int:
        (shift_ms,) = SHIFT.unpack_from(shift)
        return real_ns() + int(shift_ms) * 1_000_000

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9
    from tidelog.cli import main as tidelog  # Everything that it imports sees this clock.

    sys.argv = ["tidelog", *arguments]
    tidelog()


if __name__ == "__main__":
    main(*sys.argv[1:])
