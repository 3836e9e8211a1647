"""Recognizes replayed micro-batches.

For each transactional id, a target stores the last committed (query, batch), atomically with that batch's rows. After a crash
Spark repeats only the last micro-batch:

| the target has | the micro-batch is | result |
|---|---|---|
| nothing, or an epoch of a different query | any | new; a query with a new checkpoint is a different query |
| (q, n) | (q, n) | a replay: already committed, skipped |
| (q, n) | (q, more than n) | new |
| (q, n) | (q, less than n) | an error: the checkpoint is older than the target, and rows would be lost or duplicated |
"""

from __future__ import annotations

import json
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError


class Epoch(NamedTuple):
    """A micro-batch: its query's id and its number."""

    query_id: str
    batch_id: int

    def to_json(self) -> str:
        """Return the epoch as JSON, for the metadata of a committed offset."""
        return json.dumps({"query": self.query_id, "epoch": self.batch_id}, separators=(",", ":"))


def parse_epoch(text: str) -> Epoch | None:
    """Parse the output of `Epoch.to_json`. Return None for any other text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    query_id, batch_id = found.get("query"), found.get("epoch")
    if not isinstance(query_id, str) or not isinstance(batch_id, int) or isinstance(batch_id, bool):
        return None
    return Epoch(query_id, batch_id)


def is_replay(committed: Epoch | None, epoch: Epoch, place: str) -> bool:
    """Return whether the target already has this epoch. Raises InvalidArgumentError if the target has a later epoch of the same
    query.
    """
    if committed is None or committed.query_id != epoch.query_id or committed.batch_id < epoch.batch_id:
        return False
    if committed.batch_id == epoch.batch_id:
        return True
    raise InvalidArgumentError(
        "the query's checkpoint is older than this query's data in the target: continue from the newer checkpoint, or begin"
        " a new checkpoint (rows from its start are written again)",
        path=place,
        found=f"batch {epoch.batch_id}",
        expected=f"batch {committed.batch_id} or later",
    )
