"""Executes statements in a separate thread, batch by batch, so that Ctrl-C or any other signal cancels a query at once.

Python runs signal handlers only in the main thread, between two instructions. So the main thread waits here, and tells DuckDB to
stop if a signal interrupts the wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from tidelog.queries.explained import explained
from tidelog.queries.statements import Statement

if TYPE_CHECKING:
    from tidelog.queries.session import Session

ROWS = 10_000
"""The most rows of a batch."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of a statement, computed as they are read. They are no longer available once the session executes another
    statement.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


class Results:
    """Executes the statements of one session. Use it as a context manager."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidelog-query")

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *raised: object) -> None:
        self._thread.shutdown()

    def execute(self, statement: Statement) -> Result | None:
        """Return a statement's result, None if it has none. Raises TidelogError, also later, while the result is read."""
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
        try:
            wait([future])
        except BaseException:
            self.session.connection.interrupt()
            wait([future])
            raise
        return future.result()
