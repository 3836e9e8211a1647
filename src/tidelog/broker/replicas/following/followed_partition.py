"""A partition that this broker follows: its state, its requests to the leader, and error handling.

| state | next |
|---|---|
| Truncating | the log is truncated where it diverges from the leader's; since Fetch 12, fetch responses say where |
| Fetching | records are fetched from the log end |
| OutOfRange | the leader lacks the fetch offset; it is asked where its log starts and ends |
| Failed | nothing is fetched until the partition is followed again, in a newer epoch or after its disk is back |

| error in a response | action |
|---|---|
| OFFSET_OUT_OF_RANGE | OutOfRange |
| FENCED_LEADER_EPOCH for the current epoch | Failed: the metadata will bring a newer epoch |
| NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH, | the leader has older metadata than this broker: |
| UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID | retried soon, then after longer pauses |
| no error, but the leader's epochs contradict records that it has sent | retried after replica.fetch.backoff.ms, then truncated |
| any other: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE, INCONSISTENT_TOPIC_ID, … | retried after replica.fetch.backoff.ms |

Kafka waits the full ``replica.fetch.backoff.ms`` after each of these errors. Here a leader that was just elected is retried
sooner, because producers with acks=all wait for its followers. See Kafka's PartitionFetchState. Does no I/O, except that it
reads the log.
"""

from __future__ import annotations

import enum
import uuid
from typing import NamedTuple

from tidelog.broker.replicas.following.fetch_session_client import WantedFetch
from tidelog.broker.replicas.following.truncation_rules import UNDEFINED
from tidelog.model import TopicPartition
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.transitions import Transitions, checked, name_of
from tidelog.wire.error_codes import ErrorCode

FIRST_RETRY_S = 0.02
"""The pause in seconds after the first transient error. Each further error doubles the pause, up to the backoff."""

TRANSIENT = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors of a leader whose metadata is older than this broker's."""


class FollowerState(enum.Enum):
    """The states of a followed partition."""

    TRUNCATING = "Truncating"
    FETCHING = "Fetching"
    OUT_OF_RANGE = "OutOfRange"
    FAILED = "Failed"


TRANSITIONS: Transitions[FollowerState | None] = {
    None: {FollowerState.TRUNCATING: "it is followed, or followed in a newer epoch"},
    FollowerState.TRUNCATING: {
        FollowerState.FETCHING: "its log continues the leader's, or the leader's fetch response will show whether it does",
        FollowerState.FAILED: "its disk fails; the leader fences its epoch",
        None: "it is no longer followed, or is followed in a newer epoch",
    },
    FollowerState.FETCHING: {
        FollowerState.OUT_OF_RANGE: "the leader has no such offset",
        FollowerState.FAILED: "its disk fails; the leader fences its epoch, or sends records that contradict committed ones",
        None: "it is no longer followed, or is followed in a newer epoch",
    },
    FollowerState.OUT_OF_RANGE: {
        FollowerState.FETCHING: "it is truncated, or restarted at the leader's log start",
        FollowerState.FAILED: "its disk fails; the leader fences its epoch",
        None: "it is no longer followed, or is followed in a newer epoch",
    },
    FollowerState.FAILED: {None: "it is no longer followed, or is followed again"},
}


class Followed(NamedTuple):
    """A partition to follow in `leader_epoch`. `topic_id` is None if topics have no ids."""

    key: TopicPartition
    topic_id: uuid.UUID | None
    log: PartitionLog
    leader_epoch: int


class FollowedPartition:
    """A partition that is followed in one leader epoch. Times are of a monotonic clock, in seconds."""

    __slots__ = (
        "_state",
        "delayed_until_s",
        "failure",
        "has_appended",
        "is_contradicted",
        "key",
        "lag",
        "leader_epoch",
        "log",
        "retries",
        "topic_id",
    )

    def __init__(self, followed: Followed) -> None:
        self.key, self.topic_id, self.log, self.leader_epoch = followed
        self.delayed_until_s = 0.0
        self.failure = ""
        """Why the partition has failed; "" if it has not."""
        self.has_appended = False
        """Whether records of this leader were appended since the partition was followed in this epoch or last truncated."""
        self.is_contradicted = False
        """Whether the leader's last response contradicted records that this leader had sent before."""
        self.lag: int | None = None
        """The number of offsets below the leader's high watermark that were missing here after the last response. Partitions with
        lag 0 are not throttled.
        """
        self.retries = 0
        """The number of errors since the last response that was appended."""
        self._state: FollowerState | None = checked(TRANSITIONS, None, FollowerState.TRUNCATING, str(self.key))

    def __repr__(self) -> str:
        return f"<{self.key.topic}-{self.key.partition} {name_of(self._state)} in epoch {self.leader_epoch}>"

    @property
    def state(self) -> FollowerState | None:
        """The current state; None once the partition is no longer followed."""
        return self._state

    def move(self, state: FollowerState) -> None:
        """Change the state. Raises IllegalStateError if `TRANSITIONS` does not allow it."""
        self._state = checked(TRANSITIONS, self._state, state, str(self.key))

    def leave(self) -> None:
        """Stop following the partition. Responses that arrive later are ignored."""
        self._state = checked(TRANSITIONS, self._state, None, str(self.key))

    def fail(self, reason: str) -> None:
        """Stop fetching, because of `reason`."""
        self.move(FollowerState.FAILED)
        self.failure = reason

    # --- asking

    def wanted(self) -> WantedFetch:
        """Return the parameters of the next fetch: it starts at the log end, and contains the last epoch so that the
        leader can detect a divergence.
        """
        log = self.log
        latest = log.leader_epochs.latest
        return WantedFetch(
            self.topic_id,
            log.log_end_offset,
            self.leader_epoch,
            UNDEFINED if latest is None else latest.epoch,
            log.log_start_offset,
        )

    def is_answer_to(self, asked: WantedFetch) -> bool:
        """Whether the response to a request still applies: the partition has not changed since the request."""
        return (
            self._state is FollowerState.FETCHING
            and asked.leader_epoch == self.leader_epoch
            and asked.fetch_offset == self.log.log_end_offset
        )

    # --- delays

    def succeeded(self, leader_high_watermark: int) -> None:
        """Record that a response was appended."""
        self.retries = 0
        self.is_contradicted = False
        self.lag = max(leader_high_watermark - self.log.log_end_offset, 0)

    def delay(self, now_s: float, backoff_s: float, error_code: int = ErrorCode.UNKNOWN_SERVER_ERROR) -> float:
        """Pause the partition after an error. Return the time at which the pause ends."""
        wait_s = backoff_s
        if error_code in TRANSIENT:
            wait_s = min(FIRST_RETRY_S * 2 ** min(self.retries, 30), backoff_s)
        self.retries += 1
        self.delayed_until_s = now_s + wait_s
        return self.delayed_until_s
