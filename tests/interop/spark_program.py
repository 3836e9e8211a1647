"""A Spark driver in its own process, with Spark's Kafka connector and our source, that executes a test's requests.

    python -m tests.interop.spark_program

Requests are lines of JSON on stdin, responses are lines on stdout; requests from several threads overlap. A test holds a
`SparkProgram`: rows are returned as Arrow tables, an error as its class and text. `kill()` ends driver and JVM at once, like a
power failure.

| request | response |
|---|---|
| `read` | a batch query's rows in a file, and its schema |
| `write` | writes a batch query's rows without their topic and partition |
| `stream` | starts a query that writes each batch as `<batch id>.arrow`, renamed into place; waits for its end if it has one |
| `progress` | what the query has done so far, its error where it failed |
| `stop` | ends the query |

A repeated batch overwrites its file, so the folder finally contains what an idempotent sink would. If the rows differ from the
first run, it is an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

TIMEOUT_S = 400
LONGEST_QUERY_S = 380
ATTEMPTS = 8
STARVED = ("waiting for the Python worker to connect back", "Python worker failed to connect back")
ORDER = ("topic", "partition", "offset")


class QueryError(Exception):
    """What a query ended with."""


class StarvedError(Exception):
    """A query has no answer: see `is_starved`. No QueryError, which a test may expect."""


class SparkProgram:
    """The test's side. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0
        self._streams: dict[str, dict[str, Any]] = {}
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        with (folder / "spark.err").open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.interop.spark_program"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,  # the JVM is of its group, and killed with it
                env=os.environ | {"SPARK_LOCAL_DIRS": str(folder / "local")},  # what a killed JVM leaves goes with the test
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def rows(self, source: str, **options: str) -> pa.Table:
        """Return a batch query's rows, by topic, partition and offset. Raises QueryError."""
        out = self.folder / f"rows-{self._next()}.arrow"
        self._insist("read", source=source, options=options, out=str(out))
        table = read(out)
        out.unlink()
        return table

    def schema(self, source: str, **options: str) -> list[list[str]]:
        """Return the names and types of a batch query's columns."""
        answer: list[list[str]] = self._insist("schema", source=source, options=options)["schema"]
        return answer

    def write(self, rows: tuple[str, Mapping[str, str]], target: str, mode: str | None = None, **options: str) -> None:
        """Write a batch query's rows (its format and options). Raises QueryError."""
        self._ask("write", source=rows[0], given=dict(rows[1]), target=target, mode=mode, options=options)

    def stream(
        self, name: str, source: str, sink: Path, trigger: Mapping[str, Any] | None = None, **options: str
    ) -> list[dict[str, Any]]:
        """Run a stream into `sink/<batch id>.arrow`, checkpoint in `sink/checkpoint`; a new one with the same sink goes on.

        Returns what Spark says of each batch where the trigger ends the query (the default: all that is there now); else
        nothing, and the query runs on. Raises QueryError.
        """
        trigger = dict(trigger or {"availableNow": True})
        self._streams[name] = {"name": name, "source": source, "sink": str(sink), "trigger": trigger, "options": options}
        return self._go_on(name, "stream")

    def progress(self, name: str) -> list[dict[str, Any]]:
        """Return what Spark says of a running query's last batches. Raises QueryError where it has failed."""
        return self._go_on(name, "progress")

    def _go_on(self, name: str, ask: str) -> list[dict[str, Any]]:
        """Ask for a query's progress; one that Spark has ended because the machine was too busy is started again."""
        for attempt in range(ATTEMPTS):
            asked = {"name": name} if ask == "progress" else self._streams[name]
            try:
                answer: list[dict[str, Any]] = self._ask(ask, **asked)["progress"]
                return answer
            except StarvedError:
                if attempt + 1 == ATTEMPTS:
                    raise
                ask = "stream"
        raise AssertionError("unreachable")

    def _insist(self, ask: str, **more: Any) -> dict[str, Any]:
        """Ask what changes nothing, again where Spark was too busy to answer."""
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(StarvedError):
                return self._ask(ask, **more)
        return self._ask(ask, **more)

    def stop(self, name: str) -> None:
        """End a query. Raises QueryError where it has failed."""
        self._ask("stop", name=name)

    def kill(self) -> None:
        """Kill driver and JVM at any point."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._end()

    def close(self) -> None:
        """Shut down cleanly."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            self.kill()

    def said(self) -> str:
        """The processes' stderr."""
        return (self.folder / "spark.err").read_text(errors="replace")

    def __enter__(self) -> SparkProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self) -> int:
        with self._lock:
            self._number += 1
            return self._number

    def _ask(self, ask: str, **more: Any) -> dict[str, Any]:
        number = self._next()
        answer: Future[dict[str, Any]] = Future()
        assert self.process.stdin is not None
        with self._lock:
            self._waiting[number] = answer
            self.process.stdin.write(json.dumps({"number": number, "ask": ask, **more}) + "\n")
            self.process.stdin.flush()
        found = answer.result(TIMEOUT_S)
        if "error" in found:
            raise (StarvedError if is_starved(found["error"]) else QueryError)(found["error"])
        return found

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            self._waiting.pop(answer["number"]).set_result(answer)
        with self._lock:
            for waiting in self._waiting.values():
                waiting.set_exception(QueryError("the driver is gone"))
            self._waiting.clear()

    def _end(self) -> None:
        self.process.wait(30)
        self._reader.join(30)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def is_starved(error: str) -> bool:
    """Whether Spark ended a query because a Python took longer to start than the ten seconds it is given: it may go on."""
    return any(text in error for text in STARVED)


def read(path: Path) -> pa.Table:
    """Return the table in a file."""
    with pa.ipc.open_file(path) as reader:
        table: pa.Table = reader.read_all()
        return table


def written(sink: Path) -> dict[int, pa.Table]:
    """Return a stream's output batch by batch."""
    return {int(path.stem): read(path) for path in sorted(sink.glob("*.arrow"), key=lambda path: int(path.stem))}


# -- the driver's side -------------------------------------------------------------------------------------------------


class Driver:
    def __init__(self, spark: SparkSession, answers: IO[str]) -> None:
        self.spark = spark
        self.queries: dict[str, StreamingQuery] = {}
        self._answers = answers
        self._lock = threading.Lock()

    def serve(self, asked: Iterator[str]) -> None:
        with ThreadPoolExecutor(4) as pool:
            for line in asked:
                pool.submit(self._answer, json.loads(line))
            for query in self.queries.values():
                query.stop()

    def _answer(self, asked: dict[str, Any]) -> None:
        number, ask = asked.pop("number"), asked.pop("ask")
        try:
            answer: dict[str, Any] = getattr(self, f"_{ask}")(**asked) or {}
        except Exception as error:  # the test judges it
            answer = {"error": f"{type(error).__name__}: {first_cause(str(error))}{error}"}
        with self._lock:
            self._answers.write(json.dumps({"number": number, **answer}) + "\n")
            self._answers.flush()

    def _frame(self, source: str, options: dict[str, str]) -> DataFrame:
        return self.spark.read.format(source).options(**options).load()

    def _read(self, source: str, options: dict[str, str], out: str) -> None:
        write(self._frame(source, options).toArrow(), Path(out))

    def _schema(self, source: str, options: dict[str, str]) -> dict[str, Any]:
        fields = self._frame(source, options).schema.fields
        return {"schema": [[field.name, field.dataType.simpleString()] for field in fields]}

    def _write(self, source: str, given: dict[str, str], target: str, mode: str | None, options: dict[str, str]) -> None:
        self.spark.createDataFrame([], "nothing int")  # makes the session this thread's, where Spark looks a target's source up
        writer = self._frame(source, given).drop("topic", "partition").write.format(target).options(**options)
        (writer if mode is None else writer.mode(mode)).save()

    def _stream(
        self, name: str, source: str, sink: str, trigger: dict[str, Any], options: dict[str, str]
    ) -> dict[str, list[Any]]:
        def keep(frame: DataFrame, batch: int) -> None:
            path, rows = Path(sink, f"{batch}.arrow"), frame.toArrow()
            before = write(rows, path)
            if before is not None and not before.equals(read(path)):
                raise ValueError(f"batch {batch} had {before.num_rows} rows, and has {rows.num_rows} when it is run again")

        frame = self.spark.readStream.format(source).options(**options).load()
        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", f"{sink}/checkpoint")
        Path(sink).mkdir(parents=True, exist_ok=True)
        query = self.queries[name] = writer.trigger(**trigger).start()
        if "processingTime" in trigger:
            return {"progress": []}
        if not query.awaitTermination(LONGEST_QUERY_S):
            query.stop()
            raise TimeoutError(f"the query runs for more than {LONGEST_QUERY_S} s: {query.status}, {query.lastProgress}")
        return {"progress": [json.loads(progress.json) for progress in query.recentProgress]}

    def _progress(self, name: str) -> dict[str, list[Any]]:
        query = self.queries[name]
        error = query.exception()
        if error is not None:
            raise error
        return {"progress": [json.loads(progress.json) for progress in query.recentProgress]}

    def _stop(self, name: str) -> None:
        query = self.queries.pop(name)
        error = query.exception()
        query.stop()
        if error is not None:
            raise error


def first_cause(text: str) -> str:
    """Return a line with what began it all, which the JVM says last; nothing where the text is all there is."""
    causes = [line.partition("Caused by: ")[2] for line in text.splitlines() if line.lstrip().startswith("Caused by: ")]
    return f"{causes[-1]}\n" if causes else ""


def write(table: pa.Table, path: Path) -> pa.Table | None:
    """Write a table, in order, into a file that is there whole or not at all; return what was in it."""
    before = read(path) if path.exists() else None
    order = [(name, "ascending") for name in ORDER if name in table.column_names]
    whole = path.with_suffix(".part")
    with pa.ipc.new_file(whole, table.schema) as writer:
        writer.write_table(table.sort_by(order) if order else table)
    whole.rename(path)
    return before


def main() -> None:
    from tests.interop.spark_connector import start_session

    # Spark's own output is not a response.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    Driver(start_session(), answers).serve(iter(sys.stdin.readline, ""))
    os._exit(0)  # the JVM ends with its stdin; nothing of it is needed any more


if __name__ == "__main__":
    main()
