"""Error codes of responses: which error to raise, and whether to retry.

| code | retried | because |
|---|---|---|
| NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH | yes | another broker leads; the metadata names it |
| LEADER_, BROKER_, REPLICA_, OFFSET_NOT_AVAILABLE | yes | an election is in progress, or has just ended |
| UNKNOWN_TOPIC_OR_PARTITION | yes, if metadata has the topic | a broker may not know a new topic yet |
| KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS and the like | yes | the cause may be temporary |
| others | no | |

`RetryTimer` limits the total time of one call. The waits between its attempts grow.
"""

from __future__ import annotations

import time

from tidelog import errors
from tidelog.errors import KAFKA_ERROR_CODES, BrokerError, TidelogError
from tidelog.wire.error_codes import ErrorCode, code_name

RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)

FIRST_PAUSE_MS = 20
LAST_PAUSE_MS = 500

CLASSES: dict[int, type[TidelogError]] = {code: cls for cls, (code, _) in reversed(KAFKA_ERROR_CODES.items())}
"""Kafka's code → error class. If several classes have a code, the first class in the table."""
CLASSES[ErrorCode.CORRUPT_MESSAGE] = errors.CorruptBatchError
del CLASSES[ErrorCode.UNKNOWN_SERVER_ERROR]
"""UNKNOWN_SERVER_ERROR is left out, because its class says nothing about the cause."""


FORBIDDEN = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def error_for(code: int, what: str, place: object, detail: str | None = None) -> TidelogError:
    """Return the error for a broker's error code. `what` names what was requested, `place` is the broker."""
    name = code_name(code)
    if code in FORBIDDEN:
        detail = "the user is not authorized"  # The broker's own message for this code adds nothing.
    text = f"{what}: {detail}" if detail else what
    cls = CLASSES.get(code, BrokerError)
    if issubclass(cls, BrokerError):
        return cls(text, error_code=code, path=str(place), found=name)
    return cls(text, path=str(place), found=name)


class RetryTimer:
    """Limits the time of one call, including all its attempts."""

    def __init__(self, timeout_ms: int, *, first_pause_ms: float = FIRST_PAUSE_MS) -> None:
        self._timeout_ms = timeout_ms
        self._first_pause_ms = first_pause_ms
        self.restart()

    def restart(self) -> None:
        """Restart the timer after progress."""
        self._end = time.monotonic() + self._timeout_ms / 1000
        self._pause_ms = self._first_pause_ms

    def wait(self, error: Exception) -> None:
        """Wait before the next attempt; raise `error` at the timeout."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise error
        time.sleep(min(left, self._pause_ms / 1000))
        self._pause_ms = min(2 * self._pause_ms, LAST_PAUSE_MS)
