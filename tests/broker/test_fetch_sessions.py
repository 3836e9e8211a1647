"""Which sessions there are, and which one goes when there is no room. What responses tell: interop/differential."""

from __future__ import annotations

from tidelog.broker.fetch.fetch_reader import PartitionRead
from tidelog.broker.fetch.fetch_sessions import (
    EVICTION_MS,
    MAX_EPOCH,
    NO_ID,
    FetchedPartition,
    FetchSession,
    FetchSessions,
    next_epoch,
)
from tidelog.clock import ManualClock
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import FetchPartition, PartitionData


def answered(size: int) -> list[tuple[FetchedPartition, PartitionRead]]:
    return [
        (
            FetchedPartition(("topic", index), TopicPartition("topic", index), NO_ID, FetchPartition(index)),
            PartitionRead(PartitionData(index, 0, 7), 0, None, None),
        )
        for index in range(size)
    ]


def create(sessions: FetchSessions, size: int, *, is_privileged: bool = False) -> int:
    partitions = {}
    for wanted, read in answered(size):
        wanted.answered(read.answer)
        partitions[wanted.name] = wanted
    return sessions.create(partitions, is_privileged=is_privileged, uses_topic_ids=False)


def is_there(sessions: FetchSessions, session_id: int) -> bool:
    return isinstance(sessions.get(session_id, 1, uses_topic_ids=False), FetchSession)


def test_epochs() -> None:
    assert [next_epoch(epoch) for epoch in (-1, 0, 1, MAX_EPOCH)] == [-1, 1, 2, 1]


def test_get() -> None:
    sessions = FetchSessions(ManualClock(), 10)
    one = create(sessions, 2)
    assert sessions.get(one + 1, 1, uses_topic_ids=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.get(one, 2, uses_topic_ids=False) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.get(one, 1, uses_topic_ids=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    session = sessions.get(one, 1, uses_topic_ids=False)
    assert isinstance(session, FetchSession)
    assert [partition.last_high_watermark for partition in session.partitions.values()] == [7, 7]
    del session.partitions["topic", 0]
    sessions.touch(session)
    sessions.count(session)
    assert (session.epoch, sessions.cached_partitions, len(sessions)) == (2, 1, 1)
    sessions.remove(one)
    sessions.remove(one)
    assert (sessions.cached_partitions, len(sessions)) == (0, 0)


def test_no_room_for_a_while() -> None:
    clock = ManualClock()
    sessions = FetchSessions(clock, 2)
    ids = [create(sessions, 1), create(sessions, 5)]
    clock.advance(EVICTION_MS)
    assert create(sessions, 100) == 0
    assert all(is_there(sessions, one) for one in ids)


def test_the_unused_goes_first() -> None:
    clock = ManualClock()
    sessions = FetchSessions(clock, 2)
    unused, used = create(sessions, 9), create(sessions, 1)
    clock.advance(EVICTION_MS + 1)
    session = sessions.get(used, 1, uses_topic_ids=False)
    assert isinstance(session, FetchSession)
    sessions.touch(session)
    new = create(sessions, 1)
    assert new
    assert not is_there(sessions, unused)
    assert session.id == used and len(sessions) == 2


def test_the_smaller_goes() -> None:
    """Of sessions that are in use and older than two minutes, the smallest goes, if the new one is larger."""
    clock = ManualClock()
    sessions = FetchSessions(clock, 2)
    for size in (3, 2):
        create(sessions, size)
    clock.advance(EVICTION_MS + 1)
    for session in list(sessions._sessions.values()):
        sessions.touch(session)
    sessions.count(session)
    assert create(sessions, 2) == 0
    assert create(sessions, 4)
    assert sorted(session.size for session in sessions._sessions.values()) == [3, 4]


def test_followers_first() -> None:
    sessions = FetchSessions(ManualClock(), 1)
    create(sessions, 100)
    follower = create(sessions, 1, is_privileged=True)
    assert follower
    assert create(sessions, 1000) == 0
    assert is_there(sessions, follower)


def test_partitions_are_bounded() -> None:
    sessions = FetchSessions(ManualClock(), 10, max_partitions=5)
    assert create(sessions, 3)
    assert create(sessions, 3) == 0
    assert create(sessions, 2)
    assert FetchSessions(ManualClock(), 0).create(answered(1), is_privileged=True, uses_topic_ids=False) == 0
