"""The follower's end of a fetch session, by its table, and against the leader's end."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.broker.fetch.fetch_sessions import FetchedPartition, FetchSession, FetchSessions
from tidelog.broker.replicas.following.fetch_session_client import FetchSessionClient, SessionRequest, WantedFetch
from tidelog.clock import ManualClock
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import ZERO_UUID
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

IDS = {"a": uuid.UUID(int=1), "b": uuid.UUID(int=2), "c": uuid.UUID(int=3)}
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def wanted(topic: str, offset: int = 0, topic_id: uuid.UUID | None = ZERO_UUID) -> WantedFetch:
    return WantedFetch(IDS[topic] if topic_id == ZERO_UUID else topic_id, offset, 5, 4, 0)


def client(*keys: TopicPartition) -> FetchSessionClient:
    one = FetchSessionClient(1000)
    for key in keys:
        one.want(key, wanted(key.topic))
    return one


def named(request: SessionRequest, *, by_id: bool = True) -> list[tuple[Any, int, int]]:
    return [
        (topic.topic_id if by_id else topic.topic, part.partition, part.fetch_offset)
        for topic in request.topics
        for part in topic.partitions
    ]


def forgotten(request: SessionRequest, *, by_id: bool = True) -> list[tuple[Any, int]]:
    return [(topic.topic_id if by_id else topic.topic, one) for topic in request.forgotten for one in topic.partitions]


def answer(*keys: TopicPartition, session_id: int = 7, error: int = 0, by_id: bool = True) -> FetchResponse:
    responses = [
        FetchableTopicResponse(
            "" if by_id else key.topic, IDS[key.topic] if by_id else ZERO_UUID, [PartitionData(key.partition, high_watermark=1)]
        )
        for key in keys
    ]
    return FetchResponse(0, error, session_id, responses)


def test_all_partitions_once_then_what_changes() -> None:
    one = client(A0, A1, B0)
    first = one.request(17)
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert named(first) == [(IDS["a"], 0, 0), (IDS["a"], 1, 0), (IDS["b"], 0, 0)] and not first.forgotten
    part = first.topics[0].partitions[0]
    assert (part.current_leader_epoch, part.last_fetched_epoch, part.log_start_offset, part.partition_max_bytes) == (
        5,
        4,
        0,
        1000,
    )
    got = one.answered(answer(A0, A1, B0))
    assert got is not None and [key for key, _ in got] == [A0, A1, B0]

    one.want(A1, wanted("a", 10))
    one.want(A0, wanted("a"))  # The same as before: nothing to say.
    second = one.request(17)
    assert (second.session_id, second.session_epoch) == (7, 1) and named(second) == [(IDS["a"], 1, 10)]
    assert one.answered(answer()) == []

    one.drop(B0)
    one.drop(B0)
    third = one.request(17)
    assert (third.session_epoch, named(third), forgotten(third)) == (2, [], [(IDS["b"], 0)])
    assert one.answered(answer(A1)) is not None
    assert not one.request(17).is_empty, "the leader waits for what it knows already"


def test_a_partition_that_comes_back_and_one_that_never_was_sent() -> None:
    one = client(A0)
    one.request(17), one.answered(answer(A0))
    one.drop(A0)
    one.want(A0, wanted("a"))
    one.want(B0, wanted("b"))
    one.drop(B0)
    request = one.request(17)
    assert named(request) == [] and forgotten(request) == []


def test_nothing_to_ask_for() -> None:
    one = client(A0)
    one.drop(A0)
    assert one.request(17).is_empty
    one.want(A0, wanted("a"))
    assert not one.request(17).is_empty
    one.answered(answer(A0))
    one.drop(A0)
    last = one.request(17)
    assert not last.is_empty and forgotten(last) == [(IDS["a"], 0)]
    one.answered(answer())
    assert one.request(17).is_empty


def test_a_topic_that_was_created_again() -> None:
    one = client(A0)
    one.request(17), one.answered(answer(A0))
    one.want(A0, wanted("a", topic_id=IDS["c"]))
    request = one.request(17)
    assert forgotten(request) == [(IDS["a"], 0)] and named(request) == [(IDS["c"], 0, 0)]
    assert one.answered(answer(A0)) is None, "an answer for the old topic"


def test_names_where_there_are_no_ids_or_the_version_has_none() -> None:
    for version, topic_id in ((12, IDS["a"]), (17, None)):
        one = FetchSessionClient(1000)
        one.want(A0, wanted("a", topic_id=topic_id))
        assert named(one.request(version), by_id=False) == [("a", 0, 0)]
        assert one.answered(answer(A0, by_id=False)) is not None
        one.want(A0, wanted("a", 3, topic_id))
        assert named(one.request(version), by_id=False) == [("a", 0, 3)]


def test_a_session_does_not_change_between_ids_and_names() -> None:
    one = client(A0)
    one.request(17), one.answered(answer(A0))
    one.want(B0, wanted("b", topic_id=None))
    request = one.request(17)
    assert (request.session_id, request.session_epoch) == (7, 0)
    assert named(request, by_id=False) == [("a", 0, 0), ("b", 0, 0)]


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 7),
        (9999, 7),
    ],
)
def test_errors_begin_again(error: int, session_id: int) -> None:
    one = client(A0, B0)
    one.request(17), one.answered(answer(A0, B0))
    one.want(A0, wanted("a", 1))
    one.request(17)
    assert one.answered(answer(error=error, session_id=0)) is None
    request = one.request(17)
    assert (request.session_id, request.session_epoch, len(named(request))) == (session_id, 0, 2)


def test_no_answer_begins_again_and_ends_the_old_session() -> None:
    one = client(A0)
    one.request(17), one.answered(answer(A0))
    one.request(17), one.failed()
    request = one.request(17)
    assert (request.session_id, request.session_epoch) == (7, 0)
    assert one.answered(answer(A0, session_id=8)) is not None
    assert one.request(17).session_id == 8


def test_a_leader_that_makes_no_session() -> None:
    one = client(A0)
    for _ in range(2):
        request = one.request(17)
        assert (request.session_id, request.session_epoch, len(named(request))) == (0, 0, 1)
        assert one.answered(answer(A0, session_id=0)) is not None


def test_partitions_get_their_turn_where_there_is_no_session() -> None:
    one = client(A0, A1, B0)
    one.request(17), one.answered(answer(A0, A1, B0, session_id=0))
    one.want(A0, wanted("a", 9))
    assert [entry[:2] for entry in named(one.request(17))] == [(IDS["a"], 1), (IDS["b"], 0), (IDS["a"], 0)]


@pytest.mark.parametrize("found", [(A0,), (A0, B0, A1), (A0, A0), ()])
def test_a_full_answer_has_what_was_asked_for(found: tuple[TopicPartition, ...]) -> None:
    one = client(A0, B0)
    one.request(17)
    assert one.answered(answer(*found)) is None
    assert (one.request(17).session_id, one.request(17).session_epoch) == (0, 0)


def test_an_incremental_answer_has_nothing_else() -> None:
    one = client(A0)
    one.request(17), one.answered(answer(A0))
    one.request(17)
    assert one.answered(answer(B0)) is None
    assert (one.request(17).session_id, one.request(17).session_epoch) == (7, 0)


def test_a_leader_that_asks_for_a_pause() -> None:
    one = client(A0)
    one.request(17)
    assert one.answered(FetchResponse(100, 0, 0, [])) is None
    assert one.request(17).session_epoch == 0


KEYS = [TopicPartition(topic, partition) for topic in IDS for partition in range(2)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.sampled_from(KEYS), st.integers(0, 2), st.sampled_from([1, 2])),
        st.tuples(st.just("drop"), st.sampled_from(KEYS)),
        st.sampled_from([("fetch",), ("fetch",), ("fetch",), ("lost request",), ("lost answer",), ("leader restarts",)]),
    ),
    max_size=40,
)


@examples(300)
@given(steps=STEPS, slots=st.sampled_from([0, 1, 5]))
def test_the_leader_fetches_what_is_wanted(steps: list[tuple[Any, ...]], slots: int) -> None:
    """Whatever is lost: what the leader takes a fetch to ask for is what is wanted, each time that it answers."""
    one, desired = FetchSessionClient(1000), dict[TopicPartition, WantedFetch]()
    leader = FetchSessions(ManualClock(0), slots)
    for kind, *rest in steps:
        if kind == "want":
            key, offset, generation = rest
            desired[key] = wanted(key.topic, offset, uuid.UUID(int=IDS[key.topic].int + 100 * generation))
            one.want(key, desired[key])
        elif kind == "drop":
            desired.pop(rest[0], None)
            one.drop(rest[0])
        elif kind == "leader restarts":
            leader = FetchSessions(ManualClock(0), slots)
        else:
            request = one.request(17)
            if request.is_empty:
                assert not desired
                continue
            found = None if kind == "lost request" else taken_by(leader, request)
            if kind != "fetch" or found is None:
                one.failed()
                continue
            error, session_id, asked = found
            if not error:
                assert asked == {(want.topic_id, key.partition): want.fetch_offset for key, want in desired.items()}
            parts = [] if error or request.session_epoch else sorted(asked)
            responses = [FetchableTopicResponse("", name[0], [PartitionData(name[1])]) for name in parts]
            assert (one.answered(FetchResponse(0, error, session_id, responses)) is None) == bool(error)


def taken_by(leader: FetchSessions, request: SessionRequest) -> tuple[int, int, dict[Any, int]]:
    """What the leader's end makes of a request: error, session id, and each partition's offset."""
    parts = {
        (topic.topic_id, part.partition): FetchedPartition((topic.topic_id, part.partition), None, topic.topic_id, part)
        for topic in request.topics
        for part in topic.partitions
    }
    if request.session_epoch == 0:
        leader.remove(request.session_id)
        session_id = leader.create(parts, is_privileged=True, uses_topic_ids=True)
        return 0, session_id, {name: part.fetch_offset for name, part in parts.items()}
    session = leader.get(request.session_id, request.session_epoch, uses_topic_ids=True)
    if not isinstance(session, FetchSession):
        return session, 0, {}
    leader.touch(session)
    for topic in request.forgotten:
        for partition in topic.partitions:
            del session.partitions[topic.topic_id, partition]
    session.partitions.update(parts)
    return 0, session.id, {name: part.fetch_offset for name, part in session.partitions.items()}
