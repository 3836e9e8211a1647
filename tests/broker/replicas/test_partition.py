"""A replica's state machine: who leads, who is in sync, how far records are committed. Time is a number here."""

from __future__ import annotations

import pytest

from tests.broker.replicas.simulated_log import Settings, SimulatedLog
from tidelog.broker.replicas.partition import Applied, CommittedIsr, IsrChange, Partition, ReplicaState
from tidelog.errors import StorageError
from tidelog.metadata.records import PartitionRecord
from tidelog.model import TopicPartition
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.wire.error_codes import ErrorCode

KEY = TopicPartition("orders", 0)
ME, LAG_S = 1, 10.0


class Cluster:
    """Every broker is alive, in epoch 100 + its id, but for those in `dead`."""

    def __init__(self) -> None:
        self.dead: set[int] = set()

    def is_alive(self, broker_id: int) -> bool:
        return broker_id not in self.dead

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        return broker_id not in self.dead and broker_epoch in (-1, 100 + broker_id)


class Replica:
    """A partition with its log, and what it has proposed."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.cluster = Cluster()
        self.log = SimulatedLog(settings)
        self.proposed: list[IsrChange] = []
        self.partition = Partition(KEY, ME, self.cluster, LAG_S, lambda _, change: self.proposed.append(change))

    def apply(self, leader: int, leader_epoch: int, partition_epoch: int, isr: list[int], now_s: float = 0.0) -> Applied | None:
        record = PartitionRecord(
            0, replicas=[1, 2, 3], isr=isr, leader=leader, leader_epoch=leader_epoch, partition_epoch=partition_epoch
        )
        return self.partition.apply(record, self.log, now_s)

    def append(self, count: int, now_s: float = 0.0) -> bool:
        for value in range(count):
            self.log.append(self.partition.leader_epoch, value)
        return self.partition.advance(now_s)

    def fetch(self, broker_id: int, offset: int, now_s: float = 0.0, *, epoch: int | None = None, start: int = 0) -> bool:
        broker_epoch = 100 + broker_id if epoch is None else epoch
        end = LogOffsetMetadata(offset, 0, offset)
        return self.partition.follower_fetched(broker_id, broker_epoch, end, start, self.log.log_end_offset, now_s)

    def commit(self, isr: tuple[int, ...], partition_epoch: int, now_s: float = 0.0) -> bool:
        answer = CommittedIsr(self.partition.leader_epoch, partition_epoch, isr)
        return self.partition.isr_answered(self.proposed[-1], answer, now_s)


@pytest.fixture
def replica() -> Replica:
    return Replica()


def test_high_watermark_is_the_smallest_end_in_sync(replica: Replica) -> None:
    assert replica.apply(1, 5, 7, [1, 2, 3]) == Applied(is_new_epoch=True, has_advanced=False)
    assert not replica.append(10)
    assert not replica.fetch(2, 8)
    assert replica.fetch(3, 6) and replica.log.high_watermark == 6
    assert not replica.fetch(3, 4) and replica.log.high_watermark == 6
    assert replica.fetch(3, 10) and replica.log.high_watermark == 8


def test_lower_epochs_say_nothing(replica: Replica) -> None:
    replica.apply(1, 5, 7, [1, 2])
    assert replica.apply(2, 4, 9, [2]) is None and replica.apply(2, 6, 6, [2]) is None
    assert replica.partition.is_leader and replica.partition.isr == (1, 2)


def test_same_leader_epoch_changes_the_isr_only(replica: Replica) -> None:
    """And a smaller one may let the high watermark move."""
    replica.apply(1, 5, 7, [1, 2, 3])
    replica.append(4)
    replica.fetch(2, 4)
    assert replica.apply(1, 5, 8, [1, 2], now_s=20.0) == Applied(is_new_epoch=False, has_advanced=True)
    assert replica.log.high_watermark == 4 and replica.partition.epoch_start_offset == 0
    assert replica.partition.followers[2].end.message_offset == 4


def test_a_leader_notes_its_epoch_and_asks_followers_again(replica: Replica) -> None:
    replica.apply(2, 4, 6, [1, 2, 3])
    assert replica.partition.state is ReplicaState.FOLLOWER
    for value in range(3):
        replica.log.append(4, value)
    replica.apply(1, 5, 7, [1, 2, 3])
    assert replica.log.end_offset_for_epoch(4) == (4, 3) and replica.partition.epoch_start_offset == 3
    assert replica.log.high_watermark == 0, "it starts from what it knew to be committed"
    replica.fetch(2, 3)
    assert replica.fetch(3, 3) and replica.log.high_watermark == 3


def test_leading_on_keeps_what_is_known_of_followers(replica: Replica) -> None:
    replica.apply(1, 5, 7, [1, 2, 3])
    replica.append(3)
    replica.fetch(2, 3)
    replica.apply(1, 6, 8, [1, 2, 3])
    assert replica.partition.followers[2].end.message_offset == 3


def test_a_follower_joins_at_the_high_watermark_and_the_epochs_start() -> None:
    replica = Replica()
    replica.apply(2, 4, 6, [1, 2])
    for value in range(5):
        replica.log.append(4, value)
    replica.log.update_high_watermark(2)
    replica.apply(1, 5, 7, [1, 2])
    replica.fetch(3, 4)
    assert not replica.proposed, "at the high watermark, but the epoch begins at 5"
    replica.fetch(3, 5)
    assert replica.proposed == [IsrChange(KEY, 5, 7, ((1, -1), (2, -1), (3, 103)), added=3)]


def test_only_an_eligible_follower_joins(replica: Replica) -> None:
    replica.apply(1, 5, 7, [1])
    replica.fetch(2, 0, epoch=99)
    replica.cluster.dead.add(3)
    replica.fetch(3, 0)
    assert not replica.proposed
    replica.fetch(2, 0, epoch=-1)
    assert [change.added for change in replica.proposed] == [2]


def test_one_proposal_at_a_time_and_its_follower_counts(replica: Replica) -> None:
    """While it is pending: the controller may have taken it."""
    replica.apply(1, 5, 7, [1])
    replica.append(2, now_s=20.0)
    replica.fetch(2, 2, now_s=20.0)
    replica.fetch(3, 2, now_s=20.0)
    assert len(replica.proposed) == 1 and set(replica.partition.maximal_isr) == {1, 2}
    replica.append(5, now_s=100.0)
    assert replica.log.high_watermark == 2
    assert not replica.fetch(3, 7, now_s=100.0) and replica.log.high_watermark == 2
    assert replica.commit((1, 2), 8, now_s=200.0) is False and replica.partition.isr == (1, 2)
    assert replica.fetch(2, 7, now_s=200.0) and replica.log.high_watermark == 7


def test_a_late_follower_leaves_and_counts_until_that_is_committed(replica: Replica) -> None:
    replica.apply(1, 5, 7, [1, 2, 3])
    replica.append(4)
    replica.fetch(2, 4, now_s=1.0)
    replica.partition.maybe_shrink(10.0)
    assert not replica.proposed
    replica.partition.maybe_shrink(10.1)
    assert [change.isr for change in replica.proposed] == [((1, -1), (2, 102))]
    assert replica.log.high_watermark == 0 and set(replica.partition.maximal_isr) == {1, 2, 3}
    assert replica.commit((1, 2), 8, now_s=10.2) and replica.log.high_watermark == 4


def test_who_has_all_is_never_late(replica: Replica) -> None:
    replica.apply(1, 5, 7, [1, 2])
    replica.append(1)
    replica.fetch(2, 1)
    replica.partition.maybe_shrink(1000.0)
    assert not replica.proposed


def test_who_always_comes_a_little_late_stays(replica: Replica) -> None:
    replica.apply(1, 5, 7, [1, 2])
    for now_s in range(100):
        replica.append(3, float(now_s))
        replica.fetch(2, 3 * now_s, float(now_s))  # What there was when it fetched last.
        replica.partition.maybe_shrink(float(now_s))
    assert not replica.proposed


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refused_proposal_is_dropped(replica: Replica, code: ErrorCode) -> None:
    replica.apply(1, 5, 7, [1])
    replica.fetch(2, 0)
    replica.partition.isr_answered(replica.proposed[0], code, 0.0)
    assert replica.partition.pending is None and len(replica.proposed) == 1


@pytest.mark.parametrize(
    "code",
    [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NEW_LEADER_ELECTED],
)
def test_a_stale_proposal_waits_for_the_metadata(replica: Replica, code: ErrorCode) -> None:
    replica.apply(1, 5, 7, [1])
    replica.fetch(2, 0)
    replica.partition.isr_answered(replica.proposed[0], code, 0.0)
    assert replica.partition.pending is replica.proposed[0] and len(replica.proposed) == 1
    replica.apply(1, 5, 8, [1, 2])
    assert replica.partition.pending is None


def test_other_errors_are_tried_again(replica: Replica) -> None:
    replica.apply(1, 5, 7, [1])
    replica.fetch(2, 0)
    replica.partition.isr_answered(replica.proposed[0], ErrorCode.UNKNOWN_SERVER_ERROR, 0.0)
    assert replica.proposed == [replica.proposed[0]] * 2


def test_an_answer_to_another_proposal_changes_nothing(replica: Replica) -> None:
    replica.apply(1, 5, 7, [1])
    replica.fetch(2, 0)
    old = replica.proposed[0]
    replica.apply(1, 6, 8, [1])
    replica.fetch(2, 0)
    assert not replica.partition.isr_answered(old, CommittedIsr(6, 9, (1, 2, 3)), 0.0)
    assert replica.partition.isr == (1,) and replica.partition.pending is replica.proposed[1]


def test_the_metadatas_word_for_an_answer_leaves_the_next_proposal_pending(replica: Replica) -> None:
    """Unlike Kafka's: the follower that it adds may be elected, so it counts."""
    replica.apply(1, 5, 7, [1])
    replica.fetch(2, 0)
    replica.commit((1, 2), 8)
    replica.fetch(3, 0)
    replica.apply(1, 5, 8, [1, 2])
    assert set(replica.partition.maximal_isr) == {1, 2, 3}
    assert replica.partition.pending is replica.proposed[1]


def test_the_high_watermark_waits_for_min_insync_replicas() -> None:
    replica = Replica(Settings(min_insync_replicas=2))
    replica.apply(1, 5, 7, [1])
    assert not replica.append(3) and replica.partition.is_under_min_isr
    replica.fetch(2, 3)
    assert replica.commit((1, 2), 8) and replica.log.high_watermark == 3


def test_more_than_the_replicas_is_never_asked_for() -> None:
    replica = Replica(Settings(min_insync_replicas=5))
    replica.apply(1, 5, 7, [1, 2, 3])
    assert not replica.partition.is_under_min_isr


def test_what_is_not_on_the_disk_yet_is_not_committed(replica: Replica) -> None:
    replica.apply(1, 5, 7, [1])
    replica.log.is_flush_awaited = True
    assert not replica.append(3)
    replica.log.is_flush_awaited = False
    assert replica.partition.advance(0.0) and replica.log.high_watermark == 3


def test_a_follower_that_is_catching_up_is_waited_for(replica: Replica) -> None:
    """One that had all a moment ago: otherwise it might never reach the high watermark."""
    replica.apply(1, 5, 7, [1])
    replica.proposed.clear()
    replica.cluster.dead.add(2)
    replica.fetch(2, 0, now_s=1.0)
    replica.cluster.dead.clear()
    assert not replica.append(3, now_s=2.0) and replica.log.high_watermark == 0
    assert replica.partition.advance(12.0) and replica.log.high_watermark == 3


def test_low_watermark(replica: Replica) -> None:
    replica.apply(1, 5, 7, [1, 2, 3])
    replica.append(9)
    replica.fetch(2, 9, start=4)
    replica.fetch(3, 9, start=2)
    replica.log.log_start_offset = 6
    assert replica.partition.low_watermark == 2
    replica.cluster.dead.add(3)
    assert replica.partition.low_watermark == 4
    replica.cluster.dead.add(2)
    assert replica.partition.low_watermark == 6


def test_refusals(replica: Replica) -> None:
    partition = replica.partition
    assert partition.refusal() is ErrorCode.KAFKA_STORAGE_ERROR
    replica.apply(2, 5, 7, [1, 2])
    assert partition.refusal() is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition.refusal(5, by_any_replica=True) is ErrorCode.NONE
    assert partition.refusal(4) is ErrorCode.FENCED_LEADER_EPOCH and partition.refusal(6) is ErrorCode.UNKNOWN_LEADER_EPOCH
    replica.apply(1, 6, 8, [1, 2])
    assert partition.refusal() is ErrorCode.NONE and partition.refusal(6) is ErrorCode.NONE
    partition.go_offline()
    assert partition.state is ReplicaState.OFFLINE and partition.refusal() is ErrorCode.KAFKA_STORAGE_ERROR
    replica.apply(1, 6, 8, [1, 2])
    assert partition.is_leader
    partition.delete()
    assert partition.state is None


def test_a_leader_whose_log_was_loaded_again_has_its_epoch_in_it() -> None:
    """What the disk refused is lost with the old log; followers ask by epochs, and one without records has no other trace."""
    replica = Replica()
    replica.apply(1, 5, 7, [1, 2, 3])
    replica.partition.go_offline()
    replica.log = SimulatedLog()
    replica.apply(1, 5, 7, [1, 2, 3])
    assert replica.log.end_offset_for_epoch(5) == (5, 0)


def test_epochs_that_the_disk_refuses_are_taken_up_once_it_is_well(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader whose only log is full may be elected again and again meanwhile."""
    replica.apply(1, 5, 7, [1])
    with monkeypatch.context() as full:
        full.setattr(SimulatedLog, "note_leader_epoch_soon", refused)
        for epoch in (6, 7, 8):
            with pytest.raises(StorageError):
                replica.apply(1, epoch, epoch + 2, [1])
            replica.partition.go_offline()
            assert replica.partition.state is ReplicaState.OFFLINE and replica.partition.log is None
            assert replica.partition.refusal() == ErrorCode.KAFKA_STORAGE_ERROR
    replica.apply(1, 8, 10, [1])
    assert replica.partition.is_leader and replica.partition.leader_epoch == 8


def refused(*_: object) -> None:
    raise StorageError("no space left")


def test_what_was_proposed_before_the_disk_failed_may_come_to_be(replica: Replica) -> None:
    """The controller may have added the replica, and elect it: what it does not have is not committed."""
    replica.apply(1, 5, 7, [1, 2])
    replica.append(2)
    replica.fetch(2, 2)
    replica.fetch(3, 2)
    change = replica.proposed[-1]
    assert change.added == 3 and replica.log.high_watermark == 2
    replica.partition.go_offline()
    assert not replica.partition.isr_answered(change, CommittedIsr(5, 8, (1, 2, 3)), 0.0), "there is no log that it could move"
    replica.apply(1, 5, 7, [1, 2])
    replica.append(3)
    replica.fetch(2, 5)
    assert replica.log.high_watermark == 2 and replica.partition.pending is change
    replica.apply(1, 5, 8, [1, 2, 3])
    assert replica.partition.pending is None
    replica.fetch(3, 5)
    assert replica.log.high_watermark == 5
    replica.partition.delete()
    assert replica.partition.pending is None
