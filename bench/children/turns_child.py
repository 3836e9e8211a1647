"""`tidelog serve` with a measurement of its loop's turns: what one callback does, nobody else is served in.

    python turns_child.py FILE serve ...        writes the turns to FILE at its end, as JSON

A turn is [its end in epoch seconds, its processor time in ms, what ran], for turns of more than a millisecond. Processor time of
the loop's thread does not depend on what else the machine does: the time in which it waits for a processor or for the interpreter
is not in it. Where Python's garbage collector took part of it, "what ran" says how much.
"""

from __future__ import annotations

import asyncio.events
import atexit
import gc
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tidelog.cli import main

SHORTEST_S = 0.001

_RUN = asyncio.events.Handle._run


class Collections:
    """Adds up the processor time of garbage collections on the loop's thread."""

    def __init__(self) -> None:
        self.took_s = self._began_s = 0.0
        self._thread = threading.get_ident()

    def on_collection(self, phase: str, _: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._began_s = time.thread_time()
        else:
            self.took_s += time.thread_time() - self._began_s


def measure(path: Path) -> None:
    """Measure the turns of this thread's loop from now on."""
    thread = threading.get_ident()
    turns: list[tuple[float, float, str]] = []
    collections = Collections()
    gc.callbacks.append(collections.on_collection)

    def run(handle: Any) -> None:
        callback = handle._callback
        began = time.thread_time()
        collections.took_s = 0.0
        _RUN(handle)
        lasted = time.thread_time() - began
        if lasted > SHORTEST_S and threading.get_ident() == thread:
            inner = getattr(callback, "func", callback)
            what = str(getattr(inner, "__qualname__", inner))
            if collections.took_s > SHORTEST_S:
                what += f", {collections.took_s * 1000:.1f} ms of it garbage collection"
            turns.append((time.time(), lasted * 1000, what))

    asyncio.events.Handle._run = run  # type: ignore[method-assign]
    atexit.register(lambda: path.write_text(json.dumps(turns)))


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
    sys.argv[1:] = sys.argv[2:]
    main()
