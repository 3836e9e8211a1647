"""How large an answer may become whose elements are larger than what asks for them: as large as its client likes, otherwise.

Ten bytes name a topic, and its properties are 4 KB: a request that names it a million times would be answered with gigabytes.
Kafka answers it, whatever memory that takes. Here each element is answered as long as there is room; what comes after that is
refused with POLICY_VIOLATION. The first element is answered, however large it is.

| API | grows with |
|---|---|
| DescribeConfigs | properties, their synonyms and documentation |
| DescribeGroups | members, their metadata and assignments |
| DescribeProducers | producers of a partition |
| DescribeTransactions | partitions of a transaction |
| ListOffsets v0 | segments of a partition |
| OffsetFetch from v8 on | a group's offsets and their metadata |

Other APIs answer each thing once (Metadata, DescribeLogDirs), or a number of bytes with each that does not depend on anything.
"""

from __future__ import annotations

from tidelog.broker.api_error import ApiError
from tidelog.wire.error_codes import ErrorCode

MAX_ANSWER_BYTES = 64 << 20
"""So many, and one element. Half of what all answers together may have that clients do not read (`unsent_bytes`)."""


class AnswerRoom:
    """The room of one answer."""

    __slots__ = ("left_bytes",)

    def __init__(self) -> None:
        self.left_bytes = MAX_ANSWER_BYTES

    @property
    def is_used_up(self) -> bool:
        """Whether what is asked for from now on is refused."""
        return self.left_bytes <= 0

    def use(self, size: int) -> None:
        """Count an element of so many bytes; a rough number will do."""
        self.left_bytes -= size


def no_room() -> ApiError:
    """Return how an element is refused for which there is no room."""
    return ApiError(ErrorCode.POLICY_VIOLATION, "the response is full: ask for the rest in another request")
