"""Requests that may take long, in slices: a few milliseconds of the loop at a time, and all other clients in between.

A handler whose work grows with its request is a generator, or returns one. The dispatcher has `Slices.answer` begin it, and gets
the response at once if it ends within its first slice, as nearly all do; else the request is answered later::

    def handle(node, message, request):
        for one in message.topics:
            ...
            yield None                                # others may have their turn here
            checked = yield Elsewhere(lambda: ...)    # on another thread: pure work for the processor
            came = yield Until(begin)                 # `begin(done)` is called; goes on once `done(value)` is
            yield missing                             # a NotCachedError: goes on once the bytes are in memory
        return response                               # or an Outcome, as any handler

| rule | why |
|---|---|
| after a `yield`, look up again what was looked up before | a topic is deleted, a log grows, a client goes |
| make a change that belongs together between two `yield`s | nothing else runs on the loop there |
| yield once an element, or once in 16 | a `yield` costs a tenth of a microsecond; what one element costs is not sliced |
| copy record bytes of the request before a `yield` | the connection reads into that memory again |
| give `Elsewhere` all that it needs; it touches no state of the node | another thread runs it |
| expect the client to be gone | a work goes on to its end: half of a change may be done, and its memory is freed in slices, too |

All works that are not done take turns, one slice in one round of the loop. So many of them together take as much of each round
as a single one; a first slice is short where another work has just had one. Once the requests of a round have taken a slice's
time together, works are only begun in it, up to their first `yield`, and requests not even read unless they are among the
smallest: a thousand clients that ask for much at the same moment are not a thousand first slices in one round. Belongs to the
loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from tidelog.broker.server.request import Outcome, Request, Wide
from tidelog.errors import BrokerUnreachableError
from tidelog.formats.non_blocking_read import NotCachedError, ReadMode, non_blocking, read_mode

if TYPE_CHECKING:
    from tidelog.broker.timers import Blocking, Timers
    from tidelog.wire.codec import Message

logger = logging.getLogger("tidelog.broker")

SLICE_S = 0.004
SHORT_SLICE_S = 0.0005
"""The first slice of a work in a round of the loop in which others had theirs."""

NOTED_NS = 50_000
"""A request that took less is no part of what has used up a round: there are ever so many of them."""

SMALL_SLICES = 2
"""A result after so few slices is small: it is written on the loop. A busy machine makes two of one."""

COLLECTED_S = 0.02
"""After so much noted work a process that is a broker's own looks at young objects."""

MAX_PREFETCHES = 64
"""So often in a row a work may find that bytes are not in memory. Then memory is short, and it does wait for the disk.

Errors that are `is_progress` do not count."""


T = TypeVar("T")


class Until(NamedTuple):
    """A condition that work waits for: `begin` gets a function, and calls it once with the value to send to the work."""

    begin: Callable[[Callable[[object], None]], None]


class Elsewhere(NamedTuple):
    """A call to run on the thread for heavy work; its result is sent to the work, or its exception thrown into it."""

    work: Callable[[], Any]


Work: TypeAlias = "Generator[Elsewhere | Until | NotCachedError | None, Any, Message | Wide | Outcome]"


def slowly(made: Iterable[T], at_once: int) -> Generator[None, None, list[T]]:
    """Return a list of what is made one by one, with a `yield` after each `at_once` of them: `yield from` it."""
    out = []
    for one in made:
        out.append(one)
        if not len(out) % at_once:
            yield None
    return out


def picked(some: Iterable[T], is_wanted: Callable[[T], bool], at_once: int = 512) -> Generator[None, None, list[T]]:
    """Return a list of those that are wanted, with a `yield` after each `at_once` that were looked at: `yield from` it."""
    rest = iter(some)
    out: list[T] = []
    while True:
        part = list(islice(rest, at_once))
        out += filter(is_wanted, part)
        if len(part) < at_once:
            return out
        yield None


def awaited(coroutine: Coroutine[Any, Any, T]) -> Generator[Until, Any, T]:
    """Return what a coroutine returns, or raise what it raises: `yield from` it. BrokerUnreachableError where the broker ends."""
    running: list[asyncio.Task[T]] = []

    def begin(done: Callable[[object], None]) -> None:
        running.append(asyncio.get_running_loop().create_task(coroutine))
        running[0].add_done_callback(done)

    task: asyncio.Task[T] = yield Until(begin)
    if task.cancelled():
        raise BrokerUnreachableError("the broker ends")
    return task.result()


def elements(structs: Iterable[Any], name: str = "partitions") -> Iterator[tuple[Any, Any]]:
    """Yield each struct with each element of its array `name`: a request's partitions, topic by topic."""
    for struct in structs:
        for one in getattr(struct, name):
            yield struct, one


class Slices:
    """Runs long requests slice by slice. `blocking` is for what waits for a disk, `heavy` for what keeps a processor busy."""

    def __init__(self, timers: Timers, blocking: Blocking, heavy: Blocking) -> None:
        self._timers = timers
        self._blocking = blocking
        self._heavy = heavy
        self._ready: deque[_Sliced] = deque()
        self._is_scheduled = False
        self._calls: deque[Callable[[], None]] = deque()
        self._is_round_noted = False
        self._spent_s = 0.0
        self._uncollected_s = 0.0
        self._mode: ReadMode | None = None
        self.when_over: Callable[[], None] | None = None
        """Callback for the end of the next work that does not complete at once."""
        self.counts_time: Callable[[], bool] = lambda: False
        """Whether requests note how long they have kept the loop busy: where a quota is of that."""
        self.collect: Callable[[], None] = _nothing
        """Called after each `COLLECTED_S` of noted work."""
        self.longest_s = 0.0
        """The longest slice so far."""

    @property
    def waiting(self) -> int:
        """How many works wait for their turn."""
        return len(self._ready)

    @property
    def is_round_full(self) -> bool:
        """Whether requests have taken so much of this round of the loop that what takes long is left to the next ones."""
        return self._spent_s >= SLICE_S

    def answer(self, request: Request, work: Work) -> Message | Wide | Outcome:
        """Begin `work`; return what it returns, or LATER: then the request gets it when it is done.

        Its exceptions are raised here, or end the connection later. The caller notes the time (`note`).
        """
        try:
            wanted = self.first_step(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        sliced = _Sliced(self, request, work)
        if sliced.wants(wanted):
            if self._spent_s >= SLICE_S:
                self._enqueue(sliced)
                return Outcome.LATER
            began = perf_counter()
            try:
                if sliced.run(began + (SHORT_SLICE_S if self._ready else SLICE_S)):
                    self._enqueue(sliced)
            except StopIteration as end:
                sliced.over()
                return end.value  # type: ignore[no-any-return]
            finally:
                self.longest_s = max(self.longest_s, perf_counter() - began)
        return Outcome.LATER

    def first_step(self, work: Work) -> Elsewhere | Until | NotCachedError | None:
        """Begin `work` without waiting for a disk; return what it wants. Raises StopIteration where it is done, as most are."""
        mode = self._mode
        if mode is None:
            mode = self._mode = read_mode()
        before, mode.is_non_blocking = mode.is_non_blocking, True
        try:
            return work.send(None)
        finally:
            mode.is_non_blocking = before

    def go_on(self, request: Request, work: Work) -> None:
        """The same for a request that is answered later anyway: it gets the answer, whenever that comes."""
        began = perf_counter()
        try:
            answer: Message | Wide | Outcome = self.answer(request, work)
        except Exception:
            logger.exception("a request of %s failed", request)
            answer = Outcome.CLOSE
        self.spent(request, began)
        self.note(perf_counter() - began)
        request.respond(answer)

    def soon(self, call: Callable[[], None]) -> None:
        """Have `call` called, in turn, as many in a round as fit a slice: one change of a group sends a thousand answers."""
        self._calls.append(call)
        if len(self._calls) == 1:
            self._timers.call_later(0, self._call_some)

    def _call_some(self) -> None:
        until = perf_counter() + SLICE_S
        calls = self._calls
        while calls:
            try:
                calls[0]()
            except Exception:
                logger.exception("a call failed")
            del calls[0]
            if calls and perf_counter() >= until:
                self._timers.call_later(0, self._call_some)
                return

    # --- for the works

    def spent(self, request: Request, began: float) -> None:
        """Note the time since `began`, where that counts."""
        if self.counts_time():
            request.busy_ns += int((perf_counter() - began) * 1e9)

    def _enqueue(self, sliced: _Sliced) -> None:
        self._ready.append(sliced)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._timers.call_later(0, self._turn)

    def _turn(self) -> None:
        """Let the work have a slice that waits longest."""
        sliced = self._ready.popleft()
        began = perf_counter()
        try:
            sliced.turn(began + SLICE_S)
        finally:
            lasted_s = perf_counter() - began
            self.longest_s = max(self.longest_s, lasted_s)
            self.note(lasted_s)
            self._is_scheduled = bool(self._ready)
            if self._is_scheduled:
                self._timers.call_later(0, self._turn)

    def note(self, lasted_s: float) -> None:
        """Note what a request, or a slice of its work, has taken of this round of the loop."""
        self._spent_s += lasted_s
        if not self._is_round_noted:
            self._is_round_noted = True
            self._timers.call_later(0, self._next_round)

    def _next_round(self) -> None:
        self._is_round_noted = False
        self._uncollected_s += self._spent_s
        self._spent_s = 0.0
        if self._uncollected_s >= COLLECTED_S:
            self._uncollected_s = 0.0
            self.collect()


def _nothing() -> None:
    pass


class _Sliced:
    """A work that is not done. Either it waits for its turn, or for something that was asked for elsewhere."""

    __slots__ = ("_error", "_is_alone", "_prefetches", "_request", "_slices", "_turns", "_value", "_when_over", "_work")

    def __init__(self, slices: Slices, request: Request, work: Work) -> None:
        self._slices = slices
        self._request = request
        self._work = work
        self._value: Any = None
        self._error: BaseException | None = None
        self._prefetches = 0
        self._turns = 1
        self._is_alone = True
        self._when_over, slices.when_over = slices.when_over, None

    def over(self) -> None:
        """It is done, or has failed; its response may still be written, by the one thread for heavy work."""
        when_over, self._when_over = self._when_over, None
        if when_over is not None:
            self._slices._heavy.run(_nothing, lambda _: when_over())

    def run(self, until: float) -> bool:
        """Work until then; whether it may continue at its next turn: else it waits. Raises StopIteration when it is done."""
        while True:
            value, self._value = self._value, None
            error, self._error = self._error, None
            if self._prefetches >= MAX_PREFETCHES:
                wanted = self._work.send(value) if error is None else self._work.throw(error)
            else:
                with non_blocking():
                    wanted = self._work.send(value) if error is None else self._work.throw(error)
            if wanted is not None:
                return self.wants(wanted)
            self._prefetches = 0
            if perf_counter() >= until:
                return True

    def wants(self, wanted: Elsewhere | Until | NotCachedError | None) -> bool:
        """Ensure that the work gets what it yielded; whether it may continue at once."""
        if wanted is None:
            return True
        if isinstance(wanted, Elsewhere):
            self._is_alone = False
            self._slices._heavy.run(wanted.work, self._got)
        elif isinstance(wanted, Until):
            wanted.begin(self._got)
        else:
            self._prefetches += not wanted.is_progress
            self._slices._blocking.run(wanted.prefetch, self._warmed)
        return False

    def turn(self, until: float) -> None:
        """Have a slice; answer the request if that was the last one."""
        self._turns += 1
        began = perf_counter()
        try:
            if self.run(until):
                self._slices._ready.append(self)
            self._slices.spent(self._request, began)
        except StopIteration as end:
            self._slices.spent(self._request, began)
            self._request.respond(end.value, is_wide=self._turns > SMALL_SLICES or not self._is_alone)
            self.over()
        except Exception:
            self.over()
            logger.exception("a request of %s failed", self._request)
            self._request.respond(Outcome.CLOSE)

    def _got(self, result: object) -> None:
        if isinstance(result, BaseException):
            self._error = result
        else:
            self._value = result
        self._slices._enqueue(self)

    def _warmed(self, result: object) -> None:
        if isinstance(result, BaseException):
            self._prefetches = MAX_PREFETCHES  # The disk fails: the read itself will report it.
        self._slices._enqueue(self)


def in_turns(blocking: Blocking, left: list[T], do: Callable[[T], object]) -> None:
    """Do something with each, from the last to the first, as `step_by_step`. When its turn comes, one may no longer be due."""
    step_by_step(blocking, (do(left.pop()) for _ in range(len(left))))


def step_by_step(blocking: Blocking, steps: Iterator[object]) -> None:
    """Take all steps: at once for `SLICE_S`, the rest in turns with what else the loop does.

    For what is nobody's request, as transactions that time out: a client that has thousands come due at one time stalls nobody.
    """
    until = perf_counter() + SLICE_S
    for _ in steps:
        if perf_counter() >= until:
            blocking.run(_nothing, lambda _: step_by_step(blocking, steps))
            return
