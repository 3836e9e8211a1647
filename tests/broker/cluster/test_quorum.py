"""Which controller leads, and where it listens: what contradicting answers leave to be believed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.cluster.kraft.quorum import NO_LEADER, Quorum

VOTERS = {3000: ("voter-0", 9093), 3001: ("voter-1", 9093)}
OWN = {3000: ("advertised-0", 9093), 3001: ("advertised-1", 9093)}


def test_addresses_of_the_voters_setting_stay() -> None:
    quorum = Quorum(VOTERS)
    quorum.learn(3000, 1, OWN | {3002: ("advertised-2", 9093)})
    assert quorum.leader == ("voter-0", 9093)
    quorum.learn(3002, 2)
    assert quorum.leader == ("advertised-2", 9093), "an observer that was added later"


def test_the_metadata_knows_better() -> None:
    quorum = Quorum(VOTERS)
    quorum.learn(3000, 1)
    quorum.learn_voters({3000: ("moved", 9093)})
    assert quorum.leader == ("moved", 9093)
    quorum.learn(3000, 1, VOTERS)
    assert quorum.leader == ("moved", 9093)


def test_a_leader_that_was_given_up_is_believed_when_it_says_so_itself() -> None:
    quorum = Quorum(VOTERS)
    quorum.learn(3000, 1)
    quorum.give_up_leader()
    assert not quorum.learn(3000, 1)
    assert quorum.leader is None
    assert quorum.learn(3000, 1, OWN, is_by_leader=True)
    assert quorum.leader == ("voter-0", 9093)
    quorum.give_up_leader()
    assert quorum.learn(3001, 2), "a newer epoch"


names = st.sampled_from(["a", "b", "c"])
answers = st.lists(st.dictionaries(st.sampled_from([3000, 3001]), st.tuples(names, st.just(9093))))
Answers = list[dict[int, tuple[str, int]]]


@given(voters=st.booleans(), before=answers, after=answers)
def test_a_leader_that_answers_is_found_again_whatever_addresses_others_give(
    voters: bool, before: Answers, after: Answers
) -> None:
    """Controllers name each other by different addresses. None of that may hide a leader that answers."""
    quorum = Quorum(VOTERS) if voters else Quorum({}, [("bootstrap", 9093)])
    quorum.learn(3000, 1, OWN)
    quorum.give_up_leader()
    for addresses in before:
        quorum.learn(3000, 1, addresses)
        assert quorum.leader_id == NO_LEADER
    quorum.learn(3000, 1, OWN, is_by_leader=True)
    for addresses in after:
        quorum.learn(3000, 1, addresses)
        assert quorum.leader is not None
    assert quorum.leader_id == 3000
