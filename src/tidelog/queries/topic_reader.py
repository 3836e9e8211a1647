"""Reads topics for DuckDB. Tables refer to no other part of a session, so a table can be used after its session is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.decoding.decodings import Decodings
from tidelog.errors import UnknownTopicOrPartitionError
from tidelog.model import METADATA_TOPIC, TopicPartition, is_hidden
from tidelog.queries.arrow_table import ArrowTable
from tidelog.queries.decoded_topic import DecodedTopic, decoded_topic
from tidelog.queries.pruning import Filter
from tidelog.queries.topic_scan import TopicScan, plan_topic, read_topic, table_schema, topic_scan
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.sources.opening import Address, open_source
from tidelog.sources.source import Source


class TopicReader:
    """Reads topics of a source. DuckDB calls it from several threads."""

    def __init__(
        self, address: Address, options: Mapping[str, Any], *, skip_damaged: bool, decodings: Decodings | None = None
    ) -> None:
        self.scans: list[TopicScan] = []
        """The scans since the last call to `begin`."""
        self.failure: BaseException | None = None
        """The first error of a scan since `begin`. DuckDB raises an error of its own with the same text."""
        self.only_plans = False
        """Whether scans are only planned, and read no record: for EXPLAIN."""
        self.address = address
        self._options = {**options, "skip_damaged": skip_damaged}
        self._decodings = decodings
        self._lock = threading.Lock()
        self._listing: Source | None = None

    def begin(self, *, only_plans: bool = False) -> None:
        """Forget earlier scans. With `only_plans`, later scans are only planned, and read no record."""
        self.scans, self.failure, self.only_plans = [], None, only_plans

    def open(self) -> Source:
        """Open the source. A source is not thread-safe. Raises the errors of `open_source`."""
        return open_source(self.address, skip_damaged=self._options["skip_damaged"])

    def topics(self, names: Iterable[str] | None = None) -> dict[str, list[int]]:
        """List the topics and their current partitions. ``__cluster_metadata`` is listed only if `names` has it."""
        with self._lock:
            if self._listing is None:
                self._listing = self.open()
            self._listing.refresh()
            wanted = None if names is None else list(names)
            found = self._listing.topics(wanted)
            if wanted is not None and METADATA_TOPIC in wanted:
                with suppress(UnknownTopicOrPartitionError):
                    found[METADATA_TOPIC] = self._listing.partitions(METADATA_TOPIC)
            return found

    def close(self) -> None:
        """Close the source that lists topics. Each scan opens another one."""
        with self._lock:
            if self._listing is not None:
                self._listing.close()
                self._listing = None

    def table(self, topic: str | None, *, is_raw: bool = False) -> ArrowTable:
        """Return a topic's table. If `topic` is None, return the table of all topics that are not internal."""
        return self._table(topic, DecodedTopic(topic or ""), is_raw=is_raw)

    def decoded_table(self, topic: str) -> ArrowTable | None:
        """Return a topic's table with decoded keys and values, None if the topic has no decoder. Read the newest records to infer
        the types.
        """
        if self._decodings is None or not self._decodings.decodes(topic):
            return None
        self.topics()
        with self._lock:
            assert self._listing is not None
            shape = decoded_topic(topic, self._decodings, self.address, self._listing, self._options)
        return None if shape.decodings is None else self._table(topic, shape)

    def _table(self, topic: str | None, shape: DecodedTopic, *, is_raw: bool = False) -> ArrowTable:
        schema = table_schema(shape.schema(), is_raw=is_raw)
        return ArrowTable(schema, partial(self._read, topic, shape, schema))

    def _read(
        self, topic: str | None, shape: DecodedTopic, schema: pa.Schema, names: Sequence[str], expression: pc.Expression | None
    ) -> pa.RecordBatchReader:
        accepts = Filter(expression, schema)
        batches = self._kept(lambda: self._batches(topic, shape, names, accepts))
        return pa.RecordBatchReader.from_batches(pa.schema([schema.field(name) for name in names]), batches)

    def _kept(self, make: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        try:
            yield from make()
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failure = self.failure or error
            raise

    def _batches(self, topic: str | None, shape: DecodedTopic, names: Sequence[str], accepts: Filter) -> Iterator[pa.RecordBatch]:
        found = self.topics(None if topic is None else [topic])
        if topic is None:
            wanted = [name for name in sorted(found) if not is_hidden(name)]
        else:
            wanted = [topic]
        missing = self._missing()
        for name in wanted:
            one = topic_scan(name, found.get(name, []), [gap for gap in missing if gap.topic == name], names, accepts)
            if one is None:
                continue
            if one.bounds.offsets is not None:
                one.bounds = replace(one.bounds, offsets=self._within_log(name, one.bounds.offsets))
            self.scans.append(one)
            if self.only_plans:
                plan_topic(self.address, one, self._options)
            else:
                yield from read_topic(self.address, shape, one, accepts, names, self._options)

    def _within_log(self, topic: str, offsets: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """Limit the ranges to the log end. Otherwise a scan would print a note about offsets that do not exist yet."""
        isolation, until = self._options["isolation"], self._options["until"]
        with self._lock:
            assert self._listing is not None
            ends = self._listing.ends([TopicPartition(topic, number) for number in offsets], isolation, until)
        known = {key.partition: one.end_offset for key, one in ends.items()}
        return {number: (first, max(first, min(end, known.get(number, end)))) for number, (first, end) in offsets.items()}

    def _missing(self) -> list[MissingOffsets]:
        with self._lock:
            return [] if self._listing is None else self._listing.missing_partitions()
