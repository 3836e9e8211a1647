"""Changes of topics, driven in steps from the loop: many at once, with one flush of the metadata for all that wait for one.

A change is a generator (`storage.steps`) that waits for disks: records of the metadata until they are on the disk, folders until
they are made. A handler has the changes of its request done side by side, and answers when all are done::

    results = yield from node.topic_changes.side_by_side([Job(name, steps), ...])      # a work of `slices`

| rule | |
|---|---|
| changes of one topic come one after the other | the next one begins when the one before is over, and sees what came of it |
| names that differ in dots and underscores only count as one | so that of two that collide the second is refused |
| a topic is there for clients once it is whole | all partitions at the same time, after its folders are synced |
| a topic that is being deleted is not there | from the first step on; its name is free when it is gone |
| all changes that wait for the metadata's disk share a flush | one is under way at a time |
| of one request, one call at a time is on another thread | so that requests take turns there |
| a request whose client is gone is still finished | |
| a deletion that the disk refuses to finish is tried again | by itself, until it is finished |
| a broker that ends waits for changes as for any request | then gives them up: the next start completes or undoes them |

`Node` owns one; belongs to the loop's thread.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tidelog.broker.server.request import Outcome, Request
from tidelog.broker.server.slices import Elsewhere, Until, Work
from tidelog.broker.server.wide_requests import discarded
from tidelog.errors import StorageError
from tidelog.formats.non_blocking_read import blocking
from tidelog.storage.metadata.metadata_store import Change
from tidelog.storage.segment.descriptors import ensure_spare
from tidelog.storage.steps import Steps

if TYPE_CHECKING:
    from tidelog.broker.core import Core

CALL_S = 0.005
"""So long a thread works on one request's folders before another request's have their turn."""

FIRST_WAIT_MS = 500
LONGEST_WAIT_MS = 5_000
"""Between two tries to finish deletions; the first wait is doubled each time."""

Made = dict[Callable[[], Any], "list[_Task]"]


class Job(NamedTuple):
    """A topic, and what is to be done about it. The steps begin when no other change of that topic is in progress."""

    name: str
    steps: Steps[Any]


class TopicChanges:
    """Runs changes of topics step by step."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._next: dict[str, deque[_Task]] = {}
        """Tasks that wait for a topic that is being changed, by its name."""
        self._runs: set[_Run] = set()
        self._unflushed: list[tuple[Change, _Task]] = []
        self._is_flushing = False
        self._others: list[Callable[[Any], None]] = []
        self._wait_ms = 0
        self.is_over = False

    def is_changing(self, name: str) -> bool:
        """Whether a change of the topic, or of one whose name collides, is in progress."""
        return _look_alike(name) in self._next

    def side_by_side(self, jobs: Iterable[Job]) -> Generator[Elsewhere | Until | None, Any, list[Any]]:
        """Do all; return what their steps return, in order. Raises the first error that they raise, when all are over."""
        run = _Run(self, self._core)
        self._runs.add(run)
        try:
            yield from run.work(jobs)
        finally:
            self._runs.discard(run)
            run.close()
        values = []
        try:
            for task in run.tasks:
                if task.error is not None:
                    raise task.error
                values.append(task.value)
                if not len(values) % 256:
                    yield None
            yield from discarded(None, run.tasks)
        finally:
            run.tasks.clear()  # They know the run, too: nothing of a request must wait for the collector.
        return values

    def begin(self, job: Job, done: Callable[[Any], None]) -> None:
        """Do one that no client asked for; `done` is called, once, with what its steps return, or with the error."""

        def work() -> Work:
            try:
                (result,) = yield from self.side_by_side([job])
            except Exception as error:
                result = error
            self._others.remove(done)
            done(result)
            return Outcome.NOTHING

        self._others.append(done)
        self._core.slices.go_on(cast("Request", _NOBODY), work())

    def finish_later(self, finishing: Callable[[str], Steps[None]]) -> None:
        """Go on with deletions that the disk has refused to finish, in a while, and until there are none.

        `finishing` gives the steps for a topic: `Topics.finishing`.
        """
        if not self._wait_ms:
            self._wait_ms = FIRST_WAIT_MS
            self._core.timers.call_later(self._wait_ms, partial(self._finish, finishing))

    def _finish(self, finishing: Callable[[str], Steps[None]]) -> None:
        names = () if self.is_over else self._core.manager.unfinished_deletions()
        if not names:
            self._wait_ms = 0
            return
        left = set(names)

        def over(name: str, _: object) -> None:
            left.discard(name)
            if not left and not self.is_over:
                self._wait_ms = min(2 * self._wait_ms, LONGEST_WAIT_MS)
                self._core.timers.call_later(self._wait_ms, partial(self._finish, finishing))

        for name in names:
            self.begin(Job(name, finishing(name)), partial(over, name))

    def stop(self) -> None:
        """Give up what is not done, once no other thread works for it any more."""
        self.is_over = True
        for run in list(self._runs):
            run.close()
        others, self._others = self._others, []
        for done in others:
            done(StorageError("the broker has ended", path=self._core.manager.directory))

    # --- for runs

    def enter(self, task: _Task) -> bool:
        """Whether a task may begin; else it is made ready when it may."""
        queue = self._next.get(task.key)
        if queue is None:
            self._next[task.key] = deque()
            return True
        queue.append(task)
        return False

    def leave(self, task: _Task) -> None:
        """A task is over."""
        if self.is_over:
            return
        queue = self._next[task.key]
        while queue:
            following = queue.popleft()
            if not following.is_over:
                following.has_turn = True
                following.run.wake(following)
                return
        del self._next[task.key]

    def note(self, change: Change, task: _Task) -> None:
        """Make a task ready once its change is on the disk, or refused: after the next `flush`."""
        self._unflushed.append((change, task))

    def flush(self) -> None:
        """Have all changes that wait written by one flush, after the one that is under way."""
        if not self._is_flushing and self._unflushed:
            self._is_flushing = True
            unflushed, self._unflushed = self._unflushed, []
            self._core.blocking.run(self._core.manager.metadata.flush, partial(self._flushed, unflushed))

    def _flushed(self, flushed: list[tuple[Change, _Task]], result: object) -> None:
        self._is_flushing = False
        if self.is_over:
            return
        for change, task in flushed:
            try:
                if not change.is_settled and isinstance(result, Exception):
                    raise result
                self._core.manager.metadata.check(change)
            except Exception as error:
                task.error = error
            task.run.wake(task)
        self.flush()


class _Task:
    """One job of a run. `value` and `error` are what its next step is sent, or at its end what came of it."""

    __slots__ = ("error", "has_turn", "is_over", "key", "run", "steps", "value")

    def __init__(self, run: _Run, job: Job) -> None:
        self.run = run
        self.key = _look_alike(job.name)
        self.steps = job.steps
        self.value: Any = None
        self.error: Exception | None = None
        self.has_turn = False
        self.is_over = False


class _Run:
    """The jobs of one request."""

    def __init__(self, changes: TopicChanges, core: Core) -> None:
        self.tasks: list[_Task] = []
        self._changes = changes
        self._core = core
        self._ready: deque[_Task] = deque()
        self._left = 0
        self._calls: Made = {}
        self._is_calling = False
        self._awaken: Callable[[object], None] | None = None

    def work(self, jobs: Iterable[Job]) -> Generator[Until | None, Any, None]:
        for job in jobs:
            task = _Task(self, job)
            self.tasks.append(task)
            self._left += 1
            if self._changes.enter(task):
                task.has_turn = True
                self._ready.append(task)
            if not len(self.tasks) % 64:
                yield None
        while self._left:
            if self._ready:
                with blocking():
                    self._advance(self._ready.popleft())
                yield None
            else:
                self._changes.flush()
                self._call()
                if not self._ready:
                    yield Until(self._sleep)

    def wake(self, task: _Task) -> None:
        """A task may continue."""
        if not (task.is_over or self._changes.is_over):
            self._ready.append(task)
            awaken, self._awaken = self._awaken, None
            if awaken is not None:
                awaken(None)

    def close(self) -> None:
        """Give up what is not done."""
        for task in self.tasks:
            if not task.is_over:
                task.is_over = True
                task.steps.close()
                if task.has_turn:
                    self._changes.leave(task)

    def _sleep(self, awaken: Callable[[object], None]) -> None:
        self._awaken = awaken

    def _advance(self, task: _Task) -> None:
        value, task.value = task.value, None
        error, task.error = task.error, None
        try:
            step = task.steps.send(value) if error is None else task.steps.throw(error)
        except StopIteration as end:
            task.value = end.value
            self._over(task)
        except Exception as raised:
            task.error = raised
            self._over(task)
        else:
            if step is None:
                self._ready.append(task)
            elif isinstance(step, Change):
                self._changes.note(step, task)
            else:
                self._calls.setdefault(step, []).append(task)

    def _over(self, task: _Task) -> None:
        task.is_over = True
        self._left -= 1
        self._changes.leave(task)

    def _call(self) -> None:
        """Have another thread do some of what the tasks want called."""
        if self._calls and not self._is_calling:
            self._is_calling = True
            calls, self._calls = self._calls, {}
            with suppress(OSError):  # Only this thread can give descriptors back. If there are none, the call says so.
                ensure_spare()
            self._core.blocking.run(partial(_called, list(calls)), partial(self._came, calls))

    def _came(self, calls: Made, results: list[Any] | BaseException) -> None:
        self._is_calling = False
        if not gc.isenabled():  # For a wide request: what it makes here stays, and must not all be looked at in the end.
            gc.collect(1)
        others, self._calls = self._calls, {}
        for number, (function, tasks) in enumerate(calls.items()):
            if not isinstance(results, BaseException) and number >= len(results):
                self._calls[function] = tasks
                continue
            result = results if isinstance(results, BaseException) else results[number]
            for task in tasks:
                if isinstance(result, Exception):
                    task.error = result
                else:
                    task.value = result
                self.wake(task)
        for function, tasks in others.items():
            self._calls.setdefault(function, []).extend(tasks)


class _Nobody:
    """Stands for the request where no client asked for the change."""

    busy_ns = 0

    def respond(self, response: object, *, is_wide: bool = False) -> None:
        """It has what it wants already."""


_NOBODY = _Nobody()


def _called(functions: list[Callable[[], Any]]) -> list[Any]:
    """Call functions, in order, for a while; return what those return that were called, or their errors. On any thread."""
    results = []
    until = perf_counter() + CALL_S
    for function in functions:
        try:
            results.append(function())
        except Exception as error:
            results.append(error)
        if perf_counter() >= until:
            break
    return results


def _look_alike(name: str) -> str:
    return name.replace(".", "_")
