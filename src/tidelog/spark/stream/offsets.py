"""Converts a stream's position to and from JSON in Spark's checkpoints. A position is the next offset to read in each partition.

The form is the connector's, `{"topicA": {"0": 23, "1": 42}}`, so a stream can continue from a checkpoint of `format("kafka")`.
Spark compares positions as text. So topics and partitions are always sorted, and an unchanged position has the same text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidelog.errors import InvalidArgumentError
from tidelog.model import TopicPartition

Positions = Mapping[TopicPartition, int]

Document = dict[str, dict[str, int]]

_NUMBER = re.compile(r"\d{1,10}", re.ASCII)


def to_json(positions: Positions) -> Document:
    """Return a position as a dict that can be written as JSON."""
    document: Document = {}
    for key in sorted(positions):
        document.setdefault(key.topic, {})[str(key.partition)] = positions[key]
    return document


def from_json(document: object) -> dict[TopicPartition, int]:
    """Return the position in a checkpoint. Raises InvalidArgumentError if it is invalid."""
    positions: dict[TopicPartition, int] = {}
    if not isinstance(document, dict):
        raise _strange(document)
    for topic, partitions in document.items():
        if not isinstance(partitions, dict):
            raise _strange(document)
        for number, offset in partitions.items():
            if not _NUMBER.fullmatch(number) or not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                raise _strange(document)
            positions[TopicPartition(topic, int(number))] = offset
    return positions


def _strange(document: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        "the checkpoint's offsets belong to a different source", found=str(document)[:200], expected='{"topic": {"0": 23}}'
    )
