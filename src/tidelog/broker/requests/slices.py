"""Runs long requests in slices: each slice takes a few milliseconds of the event loop, and other clients are served in between.

A handler whose work grows with its request is a generator, or returns a generator. The dispatcher starts it with `Slices.answer`.
Nearly all work ends within the first slice, and the dispatcher gets the response at once. Otherwise the request is answered
later::

    def handle(node, message, request):
        for one in message.topics:
            ...
            yield None                                # other clients may be served here
            checked = yield Elsewhere(lambda: ...)    # on another thread: pure computation
            came = yield Until(begin)                 # calls `begin(done)`; continues after `done(value)`
            yield missing                             # a NotCachedError: continues once the bytes are in memory
        return response                               # or an Outcome, like any handler

| rule | why |
|---|---|
| after a `yield`, repeat earlier look-ups | a topic may be gone, a log may have grown, a client may have disconnected |
| do not `yield` in the middle of an atomic change | other requests run at each `yield`, and only there |
| yield after each element, or after every 16 | a `yield` costs a tenth of a microsecond; work on one element is never split |
| copy the request's record bytes before a `yield` | the connection reuses that memory |
| pass all data to the call in `Elsewhere`, which must not touch the node's state | another thread runs the call |
| expect that the client may have disconnected | the work still runs to its end, because a change may be half done |

Unfinished requests take turns, one slice per round of the loop. Therefore all of them together take no more of a round than a
single one. A first slice is short if other requests are waiting. A round is full once its requests together have taken the time
of one slice. In a full round, new requests only run up to their first `yield`, and only the smallest requests are decoded. If a
thousand large requests arrive at the same moment, their first slices are therefore spread over many rounds. Everything runs on
the event loop's thread.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tidelog.broker.loop.timers import Blocking, Timers
from tidelog.broker.requests.request import Outcome, Request, Wide
from tidelog.errors import BrokerUnreachableError
from tidelog.formats.non_blocking_read import NotCachedError, ReadMode, non_blocking, read_mode
from tidelog.wire.codec import Message

logger = logging.getLogger("tidelog.broker")

SLICE_S = 0.004
SHORT_SLICE_S = 0.0005
"""The length in seconds of a request's first slice if other requests are waiting for their turn, and of every slice while other
connections are active.
"""

NOTED_NS = 50_000
"""Requests that take less time than this are not counted towards a full round, because there are too many of them."""

SMALL_SLICES = 2
"""If a request took at most this many slices, its response counts as small and is encoded on the event loop's thread. The value
is 2 because a busy machine may split one slice in two.
"""

COLLECTED_S = 0.02
"""After this much noted work, in seconds, a dedicated broker process collects young garbage."""

MAX_PREFETCHES = 64
"""If the bytes for a read were not in memory in this many consecutive attempts, memory is short, and the next attempt may
block the event loop's thread.

A NotCachedError with `is_progress` does not count.
"""


K = TypeVar("K")
T = TypeVar("T")


class Until(NamedTuple):
    """Yielded to wait for an event. `begin` gets a function that it must call once, with the value to send to the generator."""

    begin: Callable[[Callable[[object], None]], None]


class Elsewhere(NamedTuple):
    """Yielded to run a call on the thread for heavy work. Its result is sent to the generator, or its exception is raised
    there.
    """

    work: Callable[[], Any]


Work: TypeAlias = "Generator[Elsewhere | Until | NotCachedError | None, Any, Message | Wide | Outcome]"


def slowly(made: Iterable[T], at_once: int) -> Generator[None, None, list[T]]:
    """Return the elements of an iterator as a list, with a `yield` after every `at_once` elements: use with `yield from`."""
    out = []
    for one in made:
        out.append(one)
        if not len(out) % at_once:
            yield None
    return out


def picked(some: Iterable[T], is_wanted: Callable[[T], bool], at_once: int = 512) -> Generator[None, None, list[T]]:
    """Return the wanted elements as a list, with a `yield` after every `at_once` elements examined: use with `yield from`."""
    rest = iter(some)
    out: list[T] = []
    while True:
        part = list(islice(rest, at_once))
        out += filter(is_wanted, part)
        if len(part) < at_once:
            return out
        yield None


def counted(some: Iterable[T], at_once: int = 256) -> Generator[None, None, Counter[T]]:
    """Count equal elements, with a `yield` after every `at_once` elements: use with `yield from`."""
    rest = iter(some)
    times: Counter[T] = Counter()
    while True:
        part = list(islice(rest, at_once))
        times.update(part)
        if len(part) < at_once:
            return times
        yield None


def grouped(pairs: Iterable[tuple[K, T]], at_once: int = 256) -> Generator[None, None, dict[K, list[T]]]:
    """Collect the values of each key, with a `yield` after every `at_once` pairs: use with `yield from`."""
    groups: dict[K, list[T]] = {}
    for count, (key, value) in enumerate(pairs, 1):
        groups.setdefault(key, []).append(value)
        if not count % at_once:
            yield None
    return groups


def extended(some: list[T], more: list[T], at_once: int = 4096) -> Generator[None, None, None]:
    """Append the elements of `more` to `some`, with a `yield` after every `at_once` elements: use with `yield from`."""
    for at in range(0, len(more), at_once):
        some += more[at : at + at_once]
        if at + at_once < len(more):
            yield None


def awaited(coroutine: Coroutine[Any, Any, T]) -> Generator[Until, Any, T]:
    """Return a coroutine's result, or raise its exception: use with `yield from`. Raises BrokerUnreachableError if the broker
    shuts down.
    """
    running: list[asyncio.Task[T]] = []

    def begin(done: Callable[[object], None]) -> None:
        running.append(asyncio.get_running_loop().create_task(coroutine))
        running[0].add_done_callback(done)

    task: asyncio.Task[T] = yield Until(begin)
    if task.cancelled():
        raise BrokerUnreachableError("the broker is stopping")
    return task.result()


def elements(structs: Iterable[Any], name: str = "partitions") -> Iterator[tuple[Any, Any]]:
    """Yield each struct together with each element of its array `name`, such as a request's partitions, topic by topic."""
    for struct in structs:
        for one in getattr(struct, name):
            yield struct, one


class Slices:
    """Runs long requests slice by slice. `blocking` runs work that waits for a disk, `heavy` runs long computations."""

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
        """Called when the next request that does not finish in its first slice has ended."""
        self.counts_time: Callable[[], bool] = lambda: False
        """Whether to measure the time that requests keep the event loop busy, because a request quota needs it."""
        self.is_shared: Callable[[], bool] = lambda: False
        """Whether more than one connection is active."""
        self.collect: Callable[[], None] = _nothing
        """Called after every `COLLECTED_S` of noted work."""
        self.keep: Callable[[], object] = partial(gc.collect, 1)
        """Called when a wide request has created many long-lived objects, so that later garbage collections need not
        traverse them.
        """

    @property
    def waiting(self) -> int:
        """The number of requests that wait for their turn."""
        return len(self._ready)

    @property
    def is_round_full(self) -> bool:
        """Whether requests have used up this round of the loop, so that long ones are left for later rounds."""
        return self._spent_s >= SLICE_S

    def answer(self, request: Request, work: Work) -> Message | Wide | Outcome:
        """Start `work`. Return its result if it ends in its first slice. Otherwise return LATER, and answer the request when it
        ends.

        If `work` raises an exception in its first slice, it is raised here; later exceptions close the connection. The caller
        must call `note` with the time taken.
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
                if sliced.run(began + (SHORT_SLICE_S if self._ready or self.is_shared() else SLICE_S)):
                    self._enqueue(sliced)
            except StopIteration as end:
                sliced.over()
                return end.value  # type: ignore[no-any-return]
        return Outcome.LATER

    def first_step(self, work: Work) -> Elsewhere | Until | NotCachedError | None:
        """Start `work` without waiting for a disk, and return the first value that it yields. Raises StopIteration if `work`
        ends without yielding.
        """
        mode = self._mode
        if mode is None:
            mode = self._mode = read_mode()
        before, mode.is_non_blocking = mode.is_non_blocking, True
        try:
            return work.send(None)
        finally:
            mode.is_non_blocking = before

    def go_on(self, request: Request, work: Work) -> None:
        """Run `work` for a request that is already pending, and send it the result."""
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
        """Schedule `call`. A round runs as many calls as fit into a slice: a group change may send a thousand responses."""
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
                logger.exception("a scheduled call failed")
            del calls[0]
            if calls and perf_counter() >= until:
                self._timers.call_later(0, self._call_some)
                return

    # --- for the works

    def spent(self, request: Request, began: float) -> None:
        """If the time of requests is measured, add the time since `began` to that of this request."""
        if self.counts_time():
            request.busy_ns += int((perf_counter() - began) * 1e9)

    def _enqueue(self, sliced: _Sliced) -> None:
        self._ready.append(sliced)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._timers.call_later(0, self._turn)

    def _turn(self) -> None:
        """Run a slice of the request that has waited longest."""
        sliced = self._ready.popleft()
        began = perf_counter()
        try:
            sliced.turn(began + (SHORT_SLICE_S if self.is_shared() else SLICE_S))
        finally:
            self.note(perf_counter() - began)
            self._is_scheduled = bool(self._ready)
            if self._is_scheduled:
                self._timers.call_later(0, self._turn)

    def note(self, lasted_s: float) -> None:
        """Add the duration of a request, or of a slice of its work, to the time used in this round of the loop."""
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
    """A request that did not finish in its first slice. It waits for its turn, or for the result of a `yield`."""

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
        """Note that the request's work has ended or failed. The thread for heavy work may still be encoding the response."""
        when_over, self._when_over = self._when_over, None
        if when_over is not None:
            self._slices._heavy.run(_nothing, lambda _: when_over())

    def run(self, until: float) -> bool:
        """Run the work until the time `until`. Return True if it may continue in its next turn, False if it must wait for
        something. Raises StopIteration when the work ends.
        """
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
        """Start the wait or call that the generator has yielded. Return whether the generator may continue at once."""
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
        """Run a slice, and answer the request if that was its last slice."""
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
            self._prefetches = MAX_PREFETCHES  # If the disk fails, the read itself will report that.
        self._slices._enqueue(self)


async def in_slices(work: Generator[Until | None, Any, T]) -> T:
    """Run a generator in slices on the event loop, for work without a request. Return its result, or raise its exception."""
    value: Any = None
    until = perf_counter() + SLICE_S
    while True:
        try:
            wanted = work.throw(value) if isinstance(value, BaseException) else work.send(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        value = None
        if wanted is not None:
            came: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            # The result may arrive after the wait has ended.
            wanted.begin(lambda result, came=came: came.done() or came.set_result(result))  # type: ignore[misc]
            value = await came
        elif perf_counter() < until:
            continue
        else:
            await asyncio.sleep(0)
        until = perf_counter() + SLICE_S


def in_turns(blocking: Blocking, left: list[T], do: Callable[[T], object]) -> None:
    """Call `do` with each element, last to first, in slices as in `step_by_step`. An element may be obsolete by then."""
    step_by_step(blocking, (do(left.pop()) for _ in range(len(left))))


def step_by_step(blocking: Blocking, steps: Iterator[object]) -> None:
    """Run all steps: for `SLICE_S` at once, the rest in further slices between the loop's other work.

    For work that belongs to no request, such as timing out transactions. If thousands expire at once, no client is delayed.
    """
    until = perf_counter() + SLICE_S
    for _ in steps:
        if perf_counter() >= until:
            blocking.run(_nothing, lambda _: step_by_step(blocking, steps))
            return
