"""How long the turns of a broker's loop take, in its thread's processor time: what one callback does nobody else is served in.

    with LoopTurns(broker) as turns:
        ...
    assert turns.longest.seconds < 0.01, turns.longest

Processor time, as a thread that waits for a processor uses none. What other threads keep the interpreter for is not in it, nor
is garbage collection: here it walks through what the tests of this process hold, its client first. `bench.stall_bench` has a
broker's own.

A machine may be several times slower than the one that limits were chosen on, or share its caches with others. So after a turn
that is not short, the same thread does a fixed piece of work (`_work`). The more time that takes than it usually does, the
less a second of that turn counts.
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

SHORT_S = 0.005
"""After turns that are shorter the speed of the machine is not measured."""

USUAL_S = 0.0004
"""What `_work` takes in seconds where limits of a turn were chosen."""

TRIES = 3
"""So often it is done; the mean counts, as a turn has the machine's slow moments in it as well."""


class Turn(NamedTuple):
    """One callback of the loop."""

    seconds: float
    """What it would have taken on a machine of the usual speed."""
    what: str
    slowness: float = 1.0
    """How many times longer it took here."""


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
            ended = clock() - collecting
            took, slowness = ended - began, 1.0
            if took > SHORT_S:
                _work()
                slowness = max(slowness, (clock() - collecting - ended) / (TRIES * USUAL_S))
            if len(turns) < keep or took / slowness > turns[-1].seconds:
                turns.append(Turn(took / slowness, _name(callback), slowness))
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


def _work() -> None:
    """Do what turns do most: make small objects, and look things up by names."""
    for _ in range(TRIES):
        known: dict[str, tuple[int, str]] = {}
        for number in range(2000):
            name = f"n{number}"
            known[name] = number, name
        assert sum(known[name][0] for name in known) == 1999 * 1000


def _name(callback: Any) -> str:
    inner = getattr(callback, "func", callback)
    return str(getattr(inner, "__qualname__", inner))
