"""Runs changes of topics in steps on the event loop. Many changes run side by side, and share flushes of the metadata log.

A change is a generator (`storage.steps`) that waits until metadata records are on disk, and until folders are created. A handler
runs the changes of its request side by side, and answers when all are done::

    results = yield from node.topic_changes.side_by_side([Job(name, steps), ...])      # in a handler: see `slices`

| rule | details |
|---|---|
| changes of one topic run one after the other | each begins when the previous change is over, and sees its result |
| names that differ only in dots and underscores count as one | so that the second of two colliding names is refused |
| clients see a topic once it is complete | all partitions at the same time, after its folders are synced |
| clients do not see a topic that is being deleted | from the first step; the name can be reused once the deletion is over |
| all changes that wait for the metadata's disk share a flush | one flush is in progress at a time |
| each request has one call at a time on another thread | so that requests take turns on that thread |
| changes are finished even if the client disconnects | |
| a deletion that the disk refuses is retried | automatically, until it is finished |
| a shutdown waits for changes as for any request | then abandons them: the next start completes or undoes them |

Use only on the event loop's thread. `Node` owns an instance.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, cast

from tidelog.broker.core import Core
from tidelog.broker.requests.request import Outcome, Request
from tidelog.broker.requests.slices import Elsewhere, Until, Work
from tidelog.broker.requests.wide_requests import discarded
from tidelog.errors import StorageError
from tidelog.formats.non_blocking_read import blocking
from tidelog.storage.metadata.metadata_store import Change
from tidelog.storage.segment.descriptors import ensure_spare
from tidelog.storage.steps import Steps
from tidelog.storage.topics.topic_table import look_alike

CALL_S = 0.005
"""How long, in seconds, a thread works on one request's folders before it switches to another request."""

FIRST_WAIT_MS = 500
LONGEST_WAIT_MS = 5_000
"""The longest wait between two attempts to finish deletions. The wait doubles after each attempt."""

Made = dict[Callable[[], Any], "list[_Task]"]


class Job(NamedTuple):
    """A topic and its change. The steps begin when no other change of that topic is in progress."""

    name: str
    steps: Steps[Any]


class TopicChanges:
    """Runs changes of topics step by step."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._next: dict[str, deque[_Task]] = {}
        """Tasks that wait until another change of their topic is over, by topic name."""
        self._runs: set[_Run] = set()
        self._unflushed: list[tuple[Change, _Task]] = []
        self._is_flushing = False
        self._others: list[Callable[[Any], None]] = []
        self._wait_ms = 0
        self.is_over = False

    def is_changing(self, name: str) -> bool:
        """Whether a change of the topic, or of a colliding name, is in progress."""
        return look_alike(name) in self._next

    def side_by_side(self, jobs: Iterable[Job]) -> Generator[Elsewhere | Until | None, Any, list[Any]]:
        """Run jobs concurrently, and return their results in the order of the jobs. If any fail, wait until all have ended, then
        raise the first error.
        """
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
            run.tasks.clear()  # The tasks refer to the run. Break this cycle, so that it need not wait for the garbage collector.
        return values

    def begin(self, job: Job, done: Callable[[Any], None]) -> None:
        """Run a change that no client requested. `done` is called once, with the result or the error."""

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
        """Retry unfinished deletions after a while, until none are left.

        `finishing` is `Topics.finishing`, which returns the steps for a topic.
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
        """Abandon unfinished changes. Call it only after all other threads have stopped working on them."""
        self.is_over = True
        for run in list(self._runs):
            run.close()
        others, self._others = self._others, []
        for done in others:
            done(StorageError("the broker has stopped", path=self._core.manager.directory))

    # --- called by runs

    def enter(self, task: _Task) -> bool:
        """Return whether a task may begin now. If not, the task becomes ready when the other change of its topic is over."""
        queue = self._next.get(task.key)
        if queue is None:
            self._next[task.key] = deque()
            return True
        queue.append(task)
        return False

    def leave(self, task: _Task) -> None:
        """Handle the end of a task: the next task of the same topic becomes ready."""
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
        """Make a task ready after the next `flush`, when its metadata change is on disk or has failed."""
        self._unflushed.append((change, task))

    def flush(self) -> None:
        """Write all waiting changes with one flush, after the flush in progress."""
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
    """One job of a run. `value` and `error` are the input of the job's next step, and its result once the job is over."""

    __slots__ = ("error", "has_turn", "is_over", "key", "run", "steps", "value")

    def __init__(self, run: _Run, job: Job) -> None:
        self.run = run
        self.key = look_alike(job.name)
        self.steps = job.steps
        self.value: Any = None
        self.error: Exception | None = None
        self.has_turn = False
        self.is_over = False


class _Run:
    """The jobs of one request, run side by side."""

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
        """Let a task continue."""
        if not (task.is_over or self._changes.is_over):
            self._ready.append(task)
            awaken, self._awaken = self._awaken, None
            if awaken is not None:
                awaken(None)

    def close(self) -> None:
        """Abandon unfinished tasks."""
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
        """Run some of the tasks' calls on another thread."""
        if self._calls and not self._is_calling:
            self._is_calling = True
            calls, self._calls = self._calls, {}
            with suppress(OSError):  # Only the event loop's thread can release descriptors. If none are left, the call fails.
                ensure_spare()
            self._core.blocking.run(partial(_called, list(calls)), partial(self._came, calls))

    def _came(self, calls: Made, results: list[Any] | BaseException) -> None:
        self._is_calling = False
        if not gc.isenabled():  # For a wide request.
            self._core.slices.keep()
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
    """A stand-in for the request, for changes that no client requested."""

    busy_ns = 0

    def respond(self, response: object, *, is_wide: bool = False) -> None:
        """Do nothing: the result has already been passed to `done`."""


_NOBODY = _Nobody()


def _called(functions: list[Callable[[], Any]]) -> list[Any]:
    """Call functions in order, for a limited time. Return the results or errors of the functions that were called. Any thread
    may use this.
    """
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
