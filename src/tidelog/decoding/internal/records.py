"""Decodes Kafka's internal topics: keys and values as JSON with Kafka's field names, as Kafka's tools print them.

| topic | key | value |
|---|---|---|
| `__consumer_offsets`, `__transaction_state`, `__share_group_state` | `{"type": 1, "data": …}` | `{"version": 3, "data": …}` |
| `__cluster_metadata`, `__remote_log_metadata` | none | `{"type": "TOPIC_RECORD", "version": 0, "data": …}` |

`wire/coordinator/json_form` and `metadata/json_form` have the details. No error is raised for malformed bytes and for records of
an unknown type or version, which a newer Kafka may write. Such keys and values are counted, and callers show their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidelog.errors import ProtocolError
from tidelog.metadata.json_form import show_known_value, show_remote_log_value
from tidelog.model import METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC
from tidelog.wire.codec import Bytes
from tidelog.wire.coordinator.json_form import show_key, show_value
from tidelog.wire.json_form import Json

KEYLESS: Final[Mapping[str, Callable[[Bytes], Json]]] = {
    METADATA_TOPIC: show_known_value,
    REMOTE_LOG_METADATA_TOPIC: show_remote_log_value,
}
"""Topics whose records have no meaningful keys, with the functions that convert their values to JSON."""


class InternalRecords:
    """Decodes the records of one internal topic, and counts the keys and values that cannot be decoded."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.undecoded = 0

    def notices(self) -> list[str]:
        """Return a notice with the number of keys and values that were not decoded."""
        if not self.undecoded:
            return []
        what = "1 key or value is" if self.undecoded == 1 else f"{self.undecoded:,} keys or values are"
        return [f"{self.topic}: {what} of an unknown version, or malformed; shown as bytes"]

    def key(self, key: Bytes | None) -> Json | None:
        """Return a key as JSON; None for null, and for a key that cannot be decoded."""
        try:
            return None if self.topic in KEYLESS else show_key(self.topic, key)
        except ProtocolError:
            self.undecoded += 1
            return None

    def value(self, key: Bytes | None, value: Bytes | None) -> Json | None:
        """Return the value of a record with this key as JSON; None for null, and for a value that cannot be decoded."""
        try:
            if (show := KEYLESS.get(self.topic)) is not None:
                return None if value is None else show(value)
            return show_value(self.topic, key, value)
        except ProtocolError:
            self.undecoded += 1
            return None
