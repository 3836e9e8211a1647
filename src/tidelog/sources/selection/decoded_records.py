"""Decodes the records of `tidelog cat`: as text for the text formats, as typed columns for Arrow and Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.decoding.decodings import Decodings
from tidelog.decoding.topic_decoding import UNDECODED as UNDECODED_SUFFIX
from tidelog.decoding.topic_decoding import TopicDecoding
from tidelog.errors import InvalidArgumentError
from tidelog.model import SIDES
from tidelog.sources.selection.record_files import FORM, JSON, RAW, TEXT, UNDECODED


class DecodedRecords:
    """Decodes batches of one or more topics. A topic's decoders are created when its first batch arrives."""

    def __init__(self, decodings: Decodings) -> None:
        self._decodings = decodings
        self._topics: dict[str, TopicDecoding] = {}

    def displayed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with keys and values decoded to UTF-8 text. For each key and value, an added column says whether it
        is text, JSON or undecoded bytes (`record_files.FORM`).
        """
        for batch in batches:
            parts = [self._displayed(topic, part) for topic, part in by_topic(batch)]
            if len(parts) == 1:
                yield parts[0]
            else:
                order = pc.sort_indices(batch.column("topic").dictionary_encode().indices)
                yield pa.concat_batches(parts).take(pc.sort_indices(order))

    def typed(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, topics: Iterable[str]
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema with typed columns, and the decoded batches. The first batch is read at once, because its values may
        determine the types. Raises InvalidArgumentError if there are several topics, because their columns may have different
        types.
        """
        names = list(topics)
        if len(names) != 1:
            raise InvalidArgumentError(
                "arrow and parquet output can hold only one topic with decoded keys or values: each topic has different columns"
            )
        topic = self.topic(names[0])
        rest = iter(batches)
        first = next(rest, None)
        topic.learn(pa.RecordBatch.from_pylist([], schema=schema) if first is None else first)
        return topic.schema(schema), map(topic.decode, rest if first is None else chain([first], rest))

    def notices(self) -> list[str]:
        """Return notices about values that could not be decoded, one sentence each."""
        return [text for one in self._topics.values() for text in one.notices()]

    def topic(self, name: str) -> TopicDecoding:
        """Return the decoders of a topic."""
        if name not in self._topics:
            self._topics[name] = self._decodings.topic(name)
        return self._topics[name]

    def _displayed(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        topic = self.topic(name)
        shown = topic.display(batch)
        arrays = {field: shown.column(field) for field in batch.schema.names}
        for side in SIDES:
            if side not in topic.decoders:
                arrays[side + FORM] = pa.array([RAW] * batch.num_rows, pa.uint8())
                continue
            undecoded = shown.column(side + UNDECODED_SUFFIX)
            form = JSON if topic.decoders[side].displays_json else TEXT
            arrays[side] = pc.coalesce(arrays[side].cast(pa.binary()), undecoded)
            arrays[side + FORM] = pc.if_else(undecoded.is_valid(), pa.scalar(UNDECODED, pa.uint8()), pa.scalar(form, pa.uint8()))
        return pa.RecordBatch.from_pydict(arrays)


def by_topic(batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    """Return the records of each topic as a batch. Topics are in the order of their first record."""
    column = batch.column("topic")
    topics = pc.unique(column).to_pylist()
    return [(topic, batch if len(topics) == 1 else batch.filter(pc.equal(column, topic))) for topic in topics]
