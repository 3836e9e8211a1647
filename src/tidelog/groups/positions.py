"""Groups in which Tidelog's own writers store positions. A position is not an offset of the partition under which it is stored.

| writer | group | metadata of each offset |
|---|---|---|
| the exactly-once sink | ``tidelog-sink-<transactional id>`` | ``{"query": ..., "epoch": ...}`` |
| a mirror, a replay | the job's id | ``next offset of <source topic>-<partition>`` |

Such groups are recognized by the metadata and not by their name, because jobs and consumer groups may have any name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

_NEXT_OFFSET = re.compile(r"next offset of \S+-\d+")


def source_position(topic: str, partition: int) -> str:
    """Return the metadata for a copy's position. It names the source partition of the committed offset."""
    return f"next offset of {topic}-{partition}"


def is_position(metadata: str) -> bool:
    """Whether a committed offset's metadata marks it as a position of one of Tidelog's writers."""
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
    """Whether a group has committed offsets and all of them are positions."""
    texts = list(metadata)
    return bool(texts) and all(map(is_position, texts))
