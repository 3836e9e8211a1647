"""Partitions that are followed, one step at a time: what an answer fits, delays, pieces of an append."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.partition_logs import batch, offsets, open_log
from tidelog.broker.loop.rate_limited_log import RateLimitedLog
from tidelog.broker.replicas.following.fetch_session_client import FetchSessionClient
from tidelog.broker.replicas.following.followed_partition import Followed, FollowedPartition, FollowerState
from tidelog.broker.replicas.following.followed_partitions import FollowedPartitions
from tidelog.broker.replicas.following.follower_append import pieces
from tidelog.broker.replicas.following.leader_answers import LeaderAnswers
from tidelog.broker.replicas.replication_quota import ReplicationQuota
from tidelog.model import TopicPartition
from tidelog.records.batch import iter_headers
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import PartitionData

KEY = TopicPartition("orders", 0)
BACKOFF_S = 1.0


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    one = open_log(tmp_path, topic_id=None, segment_bytes=300)
    yield one
    one.close()


def followed(log: PartitionLog, epoch: int = 3) -> Followed:
    return Followed(KEY, uuid.UUID(int=1), log, epoch)


class Following:
    """One leader's partitions, and what becomes of its answers; time stands still."""

    def __init__(self, log: PartitionLog) -> None:
        self.now_s = 100.0
        quota = ReplicationQuota(2)
        self.partitions = FollowedPartitions(quota, BACKOFF_S)
        self.session = FetchSessionClient(1000)
        limited = RateLimitedLog(logging.getLogger("tidelog.test"))
        self.answers = LeaderAnswers(1, self.partitions, quota, limited, lambda key: None, lambda: self.now_s)
        assert self.partitions.follow(followed(log))
        self.one = self.partitions.by_key[KEY]

    def ask(self) -> bool:
        """Build the next request; whether the partition is asked for."""
        self.partitions.choose(self.session, self.now_s)
        self.session.request(17)
        return KEY in self.session


def test_what_an_answer_fits(log: PartitionLog) -> None:
    one = FollowedPartition(followed(log))
    asked = one.wanted()
    assert not one.is_answer_to(asked), "it is not fetching"
    one.move(FollowerState.FETCHING)
    assert one.is_answer_to(asked) and not one.is_answer_to(asked._replace(leader_epoch=2))
    log.append_as_follower(batch(0))
    assert not one.is_answer_to(asked), "the log has gone on"
    one.leave()
    assert not one.is_answer_to(asked._replace(fetch_offset=1))


def test_delays_grow_for_what_goes_by_itself(log: PartitionLog) -> None:
    one = FollowedPartition(followed(log))
    waits = [one.delay(0, BACKOFF_S, ErrorCode.UNKNOWN_LEADER_EPOCH) for _ in range(9)]
    assert waits == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1, 1])
    one.succeeded(7)
    assert one.lag == 7 and one.delay(0, BACKOFF_S, ErrorCode.NOT_LEADER_OR_FOLLOWER) == pytest.approx(0.02)
    assert one.delay(50, BACKOFF_S, ErrorCode.KAFKA_STORAGE_ERROR) == 51


def test_a_delayed_partition_is_not_asked_for(log: PartitionLog) -> None:
    following = Following(log)
    assert following.partitions.due_s(following.now_s) == 0 and not following.ask(), "there is something to do first"
    following.partitions.fetch(following.one)
    assert following.ask() and following.partitions.due_s(following.now_s) is None
    data = PartitionData(0, ErrorCode.KAFKA_STORAGE_ERROR)
    list(following.answers.take([(KEY, data)], following.session.told))
    assert not following.ask() and following.partitions.due_s(following.now_s) == pytest.approx(BACKOFF_S)
    following.now_s += 0.9
    assert not following.ask() and following.partitions.due_s(following.now_s) == pytest.approx(0.1)
    following.now_s += 0.2
    assert following.ask()


def test_batches_of_a_newer_epoch_alone_are_not_fetched_again_at_once(log: PartitionLog) -> None:
    following = Following(log)
    following.partitions.fetch(following.one)
    following.ask()
    data = PartitionData(0, 0, 1, records=bytes(batch(0, leader_epoch=4)))
    list(following.answers.take([(KEY, data)], following.session.told))
    assert log.log_end_offset == 0 and following.one.delayed_until_s == following.now_s + BACKOFF_S


def test_a_partition_that_is_left_between_two_pieces(log: PartitionLog) -> None:
    """It may lead by then: nothing more of the answer belongs into its log."""
    following = Following(log)
    following.partitions.fetch(following.one)
    following.ask()
    batches = [bytes(batch(offset, value=b"v" * 100)) for offset in range(6)]
    data = PartitionData(0, 0, 6, records=b"".join(batches))
    steps = following.answers.take([(KEY, data)], following.session.told)
    next(steps)
    end = log.log_end_offset
    assert 0 < end < 6
    following.partitions.leave(KEY)
    log.append_as_leader(batch(value=b"own"), 4)
    list(steps)
    assert offsets(log) == list(range(end + 1)) and log.high_watermark == 0


@examples(200)
@given(
    sizes=st.lists(st.integers(0, 400), max_size=8),
    most=st.integers(50, 900),
    cut=st.integers(0, 300),
    tail=st.binary(max_size=40),
)
def test_pieces_are_the_whole_batches_in_order(sizes: list[int], most: int, cut: int, tail: bytes) -> None:
    whole = [bytes(batch(offset, value=b"v" * size)) for offset, size in enumerate(sizes)]
    partial = bytes(batch(99, value=b"p" * 300))[:cut]
    data = b"".join(whole) + partial
    found = [bytes(piece) for piece in pieces(data, most)]
    if len(data) <= most:
        assert found == ([data] if data else [])
        return
    assert b"".join(found) == b"".join(whole)
    for one in found:
        assert len(one) <= most or len(list(iter_headers(one))) == 1
    list(pieces(data + tail, most))
