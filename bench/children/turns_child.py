"""`tidelog serve` with a measurement of its loop's turns: what one callback does, nobody else is served in.

    python turns_child.py FILE serve ...        writes the turns to FILE at its end, as JSON

A turn is [its end in epoch seconds, its processor time in ms, what ran], for turns of more than a millisecond. Processor time of
the loop's thread does not depend on what else the machine does: the time in which it waits for a processor or for the interpreter
is not in it.
"""

from __future__ import annotations

import asyncio.events
import atexit
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tidelog.cli import main

SHORTEST_S = 0.001

_RUN = asyncio.events.Handle._run


def measure(path: Path) -> None:
    """Measure the turns of this thread's loop from now on."""
    thread = threading.get_ident()
    turns: list[tuple[float, float, str]] = []

    def run(handle: Any) -> None:
        callback = handle._callback
        began = time.thread_time()
        _RUN(handle)
        lasted = time.thread_time() - began
        if lasted > SHORTEST_S and threading.get_ident() == thread:
            inner = getattr(callback, "func", callback)
            turns.append((time.time(), lasted * 1000, str(getattr(inner, "__qualname__", inner))))

    asyncio.events.Handle._run = run  # type: ignore[method-assign]
    atexit.register(lambda: path.write_text(json.dumps(turns)))


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
    sys.argv[1:] = sys.argv[2:]
    main()
