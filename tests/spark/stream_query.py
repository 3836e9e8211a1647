"""What Spark does with a stream's reader, step by step, without Spark: for tests with thousands of batches."""

from __future__ import annotations

import json
import pickle
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidelog.spark.stream.stream_options import parse_stream_options
from tidelog.spark.stream.stream_reader import TidelogStreamReader

Rows = list[tuple[str, int, int]]


class Query:
    """A query with a checkpoint: `offsets` are the ends of the batches that were begun, `committed` those that were finished.

    `restart` is what happens after a crash: nothing is left but the checkpoint.
    """

    def __init__(self, options: dict[str, Any], tasks: int = 2, *, available_now: bool = False) -> None:
        self.options = {name: str(value) for name, value in options.items()}
        self.tasks = tasks
        self.offsets: list[str] = []
        self.committed = 0
        self.batches: list[Rows] = []
        self.restart(available_now=available_now)

    def restart(self, *, available_now: bool = False, **options: Any) -> None:
        if self.offsets:
            self.reader.stop()
        self.options |= {name: str(value) for name, value in options.items()}
        self.reader = self._new_reader()
        self._worker = pickle.dumps(self._new_reader())
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def _new_reader(self) -> TidelogStreamReader:
        return TidelogStreamReader(parse_stream_options(self.options), self.tasks)

    def run(self, *, once: bool = False, crashes: str = "") -> Rows | None:
        """Run one batch and return its rows, None if there is no new data. `crashes` ("planned", "read"): so far only."""
        if self.committed == len(self.offsets):
            start = self._start()
            limit = ReadAllAvailable() if once else self.reader.getDefaultReadLimit()
            end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
            self.reader.reportLatestOffset()
            if self.offsets and end == self.offsets[-1]:
                return None
            self.offsets.append(end)
        else:
            start = self._start()
        if crashes == "planned":
            return None
        rows = self.read(start, self.offsets[-1])
        if crashes == "read":
            return rows
        self.reader.commit(json.loads(self.offsets[-1]))
        self.committed += 1
        self.batches.append(rows)
        return rows

    def _start(self) -> str:
        if self.committed:
            return self.offsets[self.committed - 1]
        return json.dumps(self.reader.initialOffset())

    def read(self, start: str, end: str) -> Rows:
        planned = self.reader.partitions(json.loads(start), json.loads(end))
        found: Rows = []
        for partition in pickle.loads(pickle.dumps(list(planned))):
            for batch in pickle.loads(self._worker).read(partition):
                found += zip(*(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
        return found

    def run_all(self) -> Rows:
        """Run batches until there is nothing new; return all of their rows. An empty first batch counts as new."""
        found: Rows = []
        while (rows := self.run()) is not None:
            found += rows
        return found

    def close(self) -> None:
        self.reader.stop()
