"""How long the turns of a broker's loop take, in its thread's processor time: what one callback does nobody else is served in.

    with LoopTurns(broker) as turns:
        ...
    assert turns.longest.seconds < 0.01, turns.longest

Processor time, as it does not depend on what else the machine does. What other threads keep the interpreter for is not in it,
nor is garbage collection: here it walks through what the tests of this process hold, its client first. `bench.stall_bench` has
a broker's own.
"""

from __future__ import annotations

import asyncio.events
import gc
import threading
import time
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.broker.conftest import RunningBroker

_RUN = asyncio.events.Handle._run


class Turn(NamedTuple):
    """One callback of the loop."""

    seconds: float
    what: str


class LoopTurns:
    """Measures the turns while it is entered. One at a time in a process."""

    def __init__(self, broker: RunningBroker, keep: int = 5) -> None:
        self._broker = broker
        self._keep = keep
        self.turns: list[Turn] = []
        """The longest ones, longest first."""

    @property
    def longest(self) -> Turn:
        return self.turns[0]

    def clear(self) -> None:
        """Begin again."""
        self._broker.on_loop(self.turns.clear)

    def __enter__(self) -> Self:
        thread = self._broker.on_loop(threading.get_ident)
        turns, keep, clock = self.turns, self._keep, time.thread_time

        collecting = 0.0  # processor time of this thread so far; below 0 while it collects

        def collected(phase: str, _: dict[str, int]) -> None:
            nonlocal collecting
            if threading.get_ident() == thread:
                collecting += clock() if phase == "stop" else -clock()

        def run(handle: Any) -> None:
            if threading.get_ident() != thread:
                _RUN(handle)
                return
            began = clock() - collecting
            callback = handle._callback
            _RUN(handle)
            took = clock() - collecting - began
            if len(turns) < keep or took > turns[-1].seconds:
                turns.append(Turn(took, _name(callback)))
                turns.sort(reverse=True)
                del turns[keep:]

        asyncio.events.Handle._run = run  # type: ignore[method-assign]
        gc.callbacks.append(collected)
        self._collected = collected
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        gc.callbacks.remove(self._collected)
        self._broker.on_loop(lambda: None)
        asyncio.events.Handle._run = _RUN  # type: ignore[method-assign]


def _name(callback: Any) -> str:
    inner = getattr(callback, "func", callback)
    return str(getattr(inner, "__qualname__", inner))
