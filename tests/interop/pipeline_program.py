"""A Spark driver with streaming queries, in its own process session, which a test may kill at any moment.

    python -m tests.interop.pipeline_program SPEC.json

`SPEC.json` is a list of queries, each with the names of `Query`. The program says, a line each:

| line | |
|---|---|
| `query NAME` | a query runs, and has done its first micro-batch |
| `started` | all queries run |
| `batch NAME NUMBER` | a micro-batch is done |
| `starved NAME` | a Python worker did not start in time on a busy machine: the query is restarted |
| `failed NAME` | a query has failed: the program ends with status 1, its error is on stderr |
| `drained` | with `drain`: everything present at the start is copied; the program ends with status 0 |

`Driver` is the test's side.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.broker.eos.processes import Program
from tests.interop.spark_program import is_starved
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

LOOK_S = 0.05
FIRST_BATCH_S = 60.0
COLUMNS = ("key", "value", "headers", "partition", "timestamp")


@dataclass(frozen=True)
class Query:
    """A copy of one topic into another, partition by partition."""

    name: str
    source: str
    """Spark's format: `tidelog`, or `kafka` for Spark's own connector."""
    read: dict[str, str]
    write: dict[str, str]
    columns: Sequence[str] = field(default=COLUMNS)


class Driver(Program):
    """The program and its child processes. `expect("started")` waits for it."""

    def __init__(self, folder: Path, queries: Sequence[Query], *, drain: bool = False) -> None:
        spec = folder / "queries.json"
        spec.write_text(json.dumps({"queries": [asdict(query) for query in queries], "drain": drain, "folder": str(folder)}))
        # Its session contains Java, the Python workers, and nothing else.
        super().__init__(["setsid", sys.executable, "-m", "tests.interop.pipeline_program", str(spec)], folder / "driver.err")
        self.session = self.process.pid

    def kill_all(self) -> None:
        """Kill driver, JVM and Python's workers at once, as when the machine goes down."""
        for each in _of_session(self.session):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def kill_driver(self) -> None:
        """Kill driver and JVM. Python's workers are left in the middle of what they do, a commit perhaps."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.session, signal.SIGKILL)
        self.process.wait(PATIENCE_S)


def _of_session(session: int) -> Iterator[int]:
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                # After the name, which may have anything in it: state, parent, group, session.
                if int((each / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                    yield int(each.name)


# --- The driver's side ---


def main(spec: str) -> int:
    from tests.interop.spark_connector import start_session

    asked = json.loads(Path(spec).read_text())
    # Spark's own output is ignored.
    news = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    os.environ["SPARK_LOCAL_DIRS"] = str(Path(asked["folder"], "local"))
    spark = start_session()
    queries: dict[str, StreamingQuery] = {}
    asked_of = {each["name"]: each for each in asked["queries"]}

    def start(name: str) -> StreamingQuery:
        each = asked_of[name]
        frame = spark.readStream.format(each["source"]).options(**each["read"]).load()
        write = frame.select(*each["columns"]).writeStream.format("tidelog").options(**each["write"])
        trigger: dict[str, Any] = {"availableNow": True} if asked["drain"] else {"processingTime": "0 seconds"}
        return write.queryName(name).trigger(**trigger).start()

    for name in asked_of:
        query = queries[name] = start(name)
        # One after the other: five Pythons at once may take longer to start than Spark waits for one, which is ten seconds.
        until = time.monotonic() + FIRST_BATCH_S
        while query.isActive and query.lastProgress is None and time.monotonic() < until:
            time.sleep(LOOK_S)
        print("query", name, file=news)
    print("started", file=news)
    told: dict[str, int] = {}
    while True:
        ended = 0
        for name, query in list(queries.items()):
            progress = query.lastProgress
            if progress is not None and progress.numInputRows and told.get(name) != progress.batchId:
                told[name] = progress.batchId
                print("batch", name, progress.batchId, file=news)
            if query.isActive:
                continue
            error = query.exception()
            if error is None:
                ended += 1
            elif is_starved(str(error)):
                print("starved", name, file=news)
                queries[name] = start(name)
            else:
                print(f"{name} has failed: {error}", file=sys.stderr, flush=True)
                print("failed", name, file=news)
                return 1
        if ended == len(queries):
            print("drained", file=news)
            return 0
        time.sleep(LOOK_S)


if __name__ == "__main__":
    status = main(sys.argv[1])
    sys.stderr.flush()
    os._exit(status)  # Java ends with its stdin
