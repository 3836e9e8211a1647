"""Executes statements in a separate thread, batch by batch, so that Ctrl-C or any other signal cancels a query at once.

Python runs signal handlers only in the main thread, between two of its own instructions. That thread waits here, and tells DuckDB
to stop when the wait is interrupted. DuckDB ignores the request if its query has not begun yet, so the request is repeated until
the query has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa

from tidelog.queries.explained import explained
from tidelog.queries.statements import Statement

if TYPE_CHECKING:
    from tidelog.queries.session import Session

ROWS = 10_000
"""The largest number of rows in a batch."""

STOP_AGAIN_S = 0.02
"""Seconds between two requests to DuckDB to stop."""

T = TypeVar("T")

Wait: TypeAlias = Callable[[Future[Any], float | None], None]
"""Waits for a future, for at most the given number of seconds. If it raises an exception, the query is cancelled."""


def _wait(future: Future[Any], timeout_s: float | None) -> None:
    wait([future], timeout_s)


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of a statement, computed as they are read. They are no longer available once the session executes another
    statement.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


class Results:
    """Executes the statements of one session. Use it as a context manager."""

    def __init__(self, session: Session, wait: Wait = _wait) -> None:
        self.session = session
        self._wait = wait
        self._running: Future[Any] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidelog-query")

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *raised: object) -> None:
        if raised[0] is not None:
            # It ends after a query whose submission was interrupted.
            self._running = self._thread.submit(bool)
            self._stop()
        self._thread.shutdown()

    def execute(self, statement: Statement) -> Result | None:
        """Return a statement's result, None if it has none. Raises TidelogError, here or later while the result is being read."""
        if statement.explained is not None:
            lines = self._interruptible(lambda: explained(self.session, statement))
            table = pa.table({"explain": lines})
            return Result(table.schema, iter(table.to_batches()))
        reader = self._interruptible(lambda: self._reader(statement))
        return None if reader is None else Result(reader.schema, self._batches(reader))

    def _reader(self, statement: Statement) -> pa.RecordBatchReader | None:
        relation = self.session.relation(statement)
        return None if relation is None else relation.to_arrow_reader(ROWS)

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        while True:
            batch = self._interruptible(lambda: next(reader, None))
            if batch is None:
                return
            yield batch

    def _interruptible(self, work: Callable[[], T]) -> T:
        def translated() -> T:
            try:
                return work()
            except Exception as error:
                raise self.session.translated(error) from None

        future = self._thread.submit(translated)
        self._running = future
        try:
            self._wait(future, None)
        except BaseException:
            self._stop()
            raise
        return future.result()

    def _stop(self) -> None:
        """Cancel the running query, if any, and wait for its end. Another Ctrl-C meanwhile has no effect."""
        while self._running is not None and not self._running.done():
            with suppress(KeyboardInterrupt):
                self.session.connection.interrupt()
                self._wait(self._running, STOP_AGAIN_S)
