"""Limits the size of responses whose elements are much larger than those of the request. Without a limit, a small request could
cause an arbitrarily large response.

A request needs ten bytes to name a topic, but the topic's properties take 4 KB. A request that names a topic a million times
would cause a response of gigabytes. Kafka has no limit for that. Here elements are answered while there is room, and the others
get POLICY_VIOLATION. The first element is always answered.

| API | its response grows with |
|---|---|
| DescribeConfigs | properties, their synonyms and documentation |
| DescribeGroups | members, their metadata and assignments |
| DescribeProducers | producers of a partition |
| DescribeTransactions | partitions of a transaction |
| ListOffsets v0 | segments of a partition |
| OffsetFetch since v8 | a group's offsets and their metadata |

Other APIs answer each element once (Metadata, DescribeLogDirs), or with a fixed number of bytes.
"""

from __future__ import annotations

from tidelog.broker.requests.api_error import ApiError
from tidelog.wire.error_codes import ErrorCode

MAX_ANSWER_BYTES = 64 << 20
"""The limit of one response in bytes: half of the budget for all unread responses (`unsent_bytes`). The last element may exceed
it.
"""


class AnswerRoom:
    """Counts how many bytes are left for one response."""

    __slots__ = ("left_bytes",)

    def __init__(self) -> None:
        self.left_bytes = MAX_ANSWER_BYTES

    @property
    def is_used_up(self) -> bool:
        """Whether further elements are refused."""
        return self.left_bytes <= 0

    def use(self, size: int) -> None:
        """Count an element's size in bytes, which may be approximate."""
        self.left_bytes -= size


def no_room() -> ApiError:
    """Return the error for an element that is left out because the response is full."""
    return ApiError(ErrorCode.POLICY_VIOLATION, "the response is full: ask for the rest in another request")
