"""Groups in which Tidelog's own writers keep their positions: their numbers are no offsets of the partitions they stand under.

| writer | group | metadata of each offset |
|---|---|---|
| the exactly-once sink | ``tidelog-sink-<transactional id>`` | ``{"query": ..., "epoch": ...}`` |
| a mirror, a replay | the job's id | ``next offset of <source topic>-<partition>`` |

The metadata says them, not the name: jobs may be given any name, and a group of consumers may bear any.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

_NEXT_OFFSET = re.compile(r"next offset of \S+-\d+")


def source_position(topic: str, partition: int) -> str:
    """Return the metadata of a copy's position: the offset beside it is one of this source partition."""
    return f"next offset of {topic}-{partition}"


def is_position(metadata: str) -> bool:
    """Whether the metadata of a committed offset says that it is a position of one of Tidelog's writers."""
    if _NEXT_OFFSET.fullmatch(metadata):
        return True
    if not metadata.startswith("{"):
        return False
    try:
        found = json.loads(metadata)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() == {"query", "epoch"}


def are_positions(metadata: Iterable[str]) -> bool:
    """Whether all of a group's committed offsets are positions, and there is one at least."""
    texts = list(metadata)
    return bool(texts) and all(map(is_position, texts))
