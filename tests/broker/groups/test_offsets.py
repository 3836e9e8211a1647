"""OffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups over the wire: in all versions, of groups with and without members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.groups.members import Member
from tests.broker.groups.offset_requests import (
    NOTHING,
    Offset,
    commit,
    delete_groups,
    delete_offsets,
    fetch,
    fetch_many,
    loaded,
)
from tests.broker.loop_turns import LoopTurns
from tests.broker.raw import RawClient
from tests.broker.test_widest import LONGEST_S
from tests.broker.works import done
from tests.kafka.java import wait_until
from tests.storage.known_topics import forget
from tidelog.clock import ManualClock
from tidelog.wire.coordinator.consumer_protocol import ConsumerProtocolSubscription
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.list_groups import ListGroupsRequest

NOW_MS = 1_373_450_400_000
DAY_MS = 24 * 3600 * 1000
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
MANY_TOPICS = ["events", *(f"another topic, number {number}" for number in range(1000))]
"""More than are read on the loop."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("offsets"), offsets_topic_num_partitions=3, group_initial_rebalance_delay_ms=0)
    broker.create_topic("events", 3)
    broker.create_topic("other", 1)
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with broker.client() as client:
        yield client


def groups_of(client: RawClient) -> set[str]:
    return {one.group_id for one in client.ask(ListGroupsRequest(), 4).groups}


def member(broker: RunningBroker, group: str, topics: list[str] | None = None, **options: Any) -> Member:
    """Somebody who has joined alone, and knows what to read."""
    if topics is not None:
        options["protocols"] = {"range": encode_versioned(ConsumerProtocolSubscription(topics), 3)}
    one = Member(broker.address, group, **options)
    one.enter()
    assert not one.joined().error_code
    one.sync({one.member_id: b"assigned"})
    assert not one.synced().error_code
    return one


def test_every_version(client: RawClient) -> None:
    for version in range(1, 10):
        group = f"of version {version}"
        epoch = 4 if version >= 6 else -1
        sent = {("events", 0): Offset(version, epoch, "words"), ("events", 2): Offset(7, epoch, None), ("other", 0): Offset(0)}
        assert commit(client, group, sent, version) == dict.fromkeys(sent, 0)
        stored = {key: one._replace(metadata=one.metadata or "") for key, one in sent.items()}
        for fetched in range(1, 10):
            seen = stored if fetched >= 5 else {key: one._replace(epoch=-1) for key, one in stored.items()}
            assert fetch(client, group, [*sent, ("events", 1)], fetched) == {**seen, ("events", 1): NOTHING}
            if fetched >= 2:
                assert fetch(client, group, None, fetched) == seen
                assert fetch(client, group, [], fetched) == {}
                assert fetch(client, "nobody's", None, fetched, require_stable=fetched >= 7) == {}
            assert fetch(client, "nobody's", [("events", 0), ("nowhere", 8)], fetched) == {
                ("events", 0): NOTHING,
                ("nowhere", 8): NOTHING,
            }
    for version in range(3):
        assert delete_groups(client, "of version 1", "nobody's", "of version 1", version=version) == {
            "of version 1": ErrorCode.NONE if version == 0 else ErrorCode.GROUP_ID_NOT_FOUND,
            "nobody's": ErrorCode.GROUP_ID_NOT_FOUND,
        }
    assert fetch(client, "of version 1") == {}


def test_what_was_in_zookeeper(client: RawClient) -> None:
    """Version 0. A partition that there is not is reported first."""
    sent = {("events", 0): Offset(1), ("events", 9): Offset(1)}
    assert commit(client, "old", sent, 0) == dict.fromkeys(sent, ErrorCode.UNSUPPORTED_VERSION)
    assert commit(client, "old", {("events", 9): Offset(1)}, 0) == {("events", 9): UNKNOWN}
    assert fetch(client, "old", [("events", 0)], 0) == {
        ("events", 0): Offset(-1, -1, "", ErrorCode.UNSUPPORTED_VERSION),
    }


def test_many_groups_at_once(client: RawClient) -> None:
    commit(client, "first", {("events", 0): Offset(1)})
    commit(client, "second", {("events", 0): Offset(2, 3, "m"), ("other", 0): Offset(5)})
    wanted = {"first": None, "nobody's": [("events", 0)], "second": [("other", 0), ("events", 1)], "": None}
    for version in (8, 9):
        assert fetch_many(client, wanted, version) == {
            "first": {("events", 0): Offset(1)},
            "nobody's": {("events", 0): NOTHING},
            "second": {("other", 0): Offset(5), ("events", 1): NOTHING},
            "": {},
        }


def test_refusals(client: RawClient) -> None:
    words = "ü" * 4096
    sent = {
        ("events", 0): Offset(1, metadata=words),
        ("events", 1): Offset(1, metadata=words + "x"),
        ("events", 2): Offset(1, metadata="\U0001f600" * 2049),  # two of Java's characters each
        ("events", 3): Offset(1),
        ("events", -1): Offset(1),
        ("nowhere", 0): Offset(1),
    }
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(client, "refused", sent) == {
        ("events", 0): 0,
        ("events", 1): too_large,
        ("events", 2): too_large,
        ("events", 3): UNKNOWN,
        ("events", -1): UNKNOWN,
        ("nowhere", 0): UNKNOWN,
    }
    assert fetch(client, "refused") == {("events", 0): Offset(1, metadata=words)}
    one = {("events", 0): Offset(2)}

    def refused(group: str, **more: Any) -> int:
        return commit(client, group, one, **more)["events", 0]

    assert refused("none of that name", generation_id_or_member_epoch=0) == ErrorCode.ILLEGAL_GENERATION
    assert "none of that name" not in groups_of(client)
    assert refused("refused", generation_id_or_member_epoch=0) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused("refused", member_id="somebody") == 0  # of an empty group, whoever says so
    assert refused("refused", generation_id_or_member_epoch=1, group_instance_id="static") == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused("", retention_time_ms=-1) == 0
    assert "" in groups_of(client)
    assert delete_offsets(client, "", [("events", 0)]) == ErrorCode.INVALID_GROUP_ID
    assert delete_groups(client, "") == {"": 0}
    # More than a batch may have: none of it is kept.
    assert set(commit(client, "large", {("events", p): Offset(1, metadata="m" * 4096) for p in range(3)}).values()) == {0}


def test_a_commit_that_is_too_large(start_broker: StartBroker) -> None:
    broker = start_broker(offsets_topic_num_partitions=1, message_max_bytes=2000, auto_create_topics_enable=False)
    broker.create_topic("events", 2)
    with broker.client() as client:
        one = {("events", 0): Offset(1)}
        assert commit(client, "group", one) == {("events", 0): 0}
        both = {("events", 0): Offset(2, metadata="m" * 1500), ("events", 1): Offset(2, metadata="m" * 1500)}
        assert commit(client, "group", both) == dict.fromkeys(both, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        assert fetch(client, "group") == one


def test_members_commit(broker: RunningBroker, client: RawClient) -> None:
    one = {("events", 0): Offset(3)}
    with member(broker, "busy", instance_id="static", protocols={"range": b"words"}) as reader:

        def committed(**who: Any) -> int:
            return commit(client, "busy", one, **who)["events", 0]

        generation, member_id = reader.generation_id, reader.member_id
        who: dict[str, Any] = {"generation_id_or_member_epoch": generation, "member_id": member_id}
        assert committed() == ErrorCode.UNKNOWN_MEMBER_ID
        assert committed(**who) == 0
        assert committed(**who, group_instance_id="static") == 0
        assert committed(**who, group_instance_id="another") == ErrorCode.UNKNOWN_MEMBER_ID
        assert committed(**{**who, "member_id": "x"}, group_instance_id="static") == ErrorCode.FENCED_INSTANCE_ID
        assert committed(**{**who, "member_id": "x"}) == ErrorCode.UNKNOWN_MEMBER_ID
        assert committed(**{**who, "generation_id_or_member_epoch": generation + 1}) == ErrorCode.ILLEGAL_GENERATION
        assert committed(member_id=member_id) == ErrorCode.ILLEGAL_GENERATION
        assert fetch(client, "busy") == one
        assert delete_groups(client, "busy") == {"busy": ErrorCode.NON_EMPTY_GROUP}
        # Nobody knows what it subscribes to.
        assert delete_offsets(client, "busy", [*one]) == {("events", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
        reader.join()  # alone, so that the next generation is there at once, and waits for the leader
        assert not reader.joined().error_code
        assert committed(member_id=member_id, generation_id_or_member_epoch=reader.generation_id) == 27
        assert ErrorCode(27) is ErrorCode.REBALANCE_IN_PROGRESS
        reader.sync({reader.member_id: b""})
        reader.synced()
        assert committed(member_id=member_id, generation_id_or_member_epoch=reader.generation_id) == 0
        reader.leave()
    assert delete_groups(client, "busy") == {"busy": 0}
    assert "busy" not in groups_of(client)


def test_a_commit_is_a_sign_of_life(start_broker: StartBroker) -> None:
    clock = ManualClock(NOW_MS)
    broker = start_broker(clock=clock, offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0)
    broker.create_topic("events", 1)
    one = {("events", 0): Offset(1)}
    with broker.client() as client, member(broker, "group", session_timeout_ms=10_000) as reader:
        who: dict[str, Any] = {"member_id": reader.member_id, "generation_id_or_member_epoch": reader.generation_id}
        for expected, then_ms in ((0, 9_000), (0, 9_000), (0, 10_001), (ErrorCode.UNKNOWN_MEMBER_ID, 0)):
            assert commit(client, "group", one, **who) == {("events", 0): expected}
            clock.advance(then_ms)
            broker.on_loop(broker.running.tick)


@pytest.mark.parametrize("topics", [["events"], MANY_TOPICS], ids=["one topic", "many topics"])
def test_offsets_are_deleted(broker: RunningBroker, client: RawClient, topics: list[str]) -> None:
    all_of_it = {("events", p): Offset(p) for p in range(3)} | {("other", 0): Offset(8)}
    group = "to be forgotten"
    assert delete_offsets(client, group, [("events", 0)]) == ErrorCode.GROUP_ID_NOT_FOUND
    commit(client, group, all_of_it)
    assert delete_offsets(client, group, [("events", 0), ("events", 7), ("nowhere", 0)]) == {
        ("events", 0): 0,
        ("events", 7): UNKNOWN,
        ("nowhere", 0): UNKNOWN,
    }
    del all_of_it["events", 0]
    assert fetch(client, group) == all_of_it
    with member(broker, group, topics) as reader:
        assert delete_offsets(client, group, [("events", 1), ("other", 0)]) == {
            ("events", 1): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ("other", 0): 0,
        }
        reader.leave()
    with member(broker, group, protocol_type="connect") as reader:
        assert delete_offsets(client, group, [("other", 0)]) == ErrorCode.NON_EMPTY_GROUP
        reader.leave()
    del all_of_it["other", 0]
    assert fetch(client, group) == all_of_it
    assert delete_offsets(client, group, all_of_it) == dict.fromkeys(all_of_it, 0)
    assert group not in groups_of(client)


def test_a_long_subscription_is_not_read_on_the_loop(broker: RunningBroker, client: RawClient) -> None:
    """960 KB of one member, which were read at each request."""
    group = "of many topics"
    commit(client, group, {("other", 0): Offset(1), ("events", 0): Offset(1)})
    with member(broker, group, ["a"] * 320_000 + ["events"]) as reader, LoopTurns(broker) as turns:
        turns.clear()
        answer = delete_offsets(client, group, [("other", 0), ("events", 0)])
        assert answer == {("other", 0): 0, ("events", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
        assert turns.longest.seconds < 4 * LONGEST_S, turns.turns
        reader.leave()


def test_long_ids_are_looked_up_in_turns(broker: RunningBroker, client: RawClient) -> None:
    """Each id is hashed, at each request: 31 of 32 KB took 0.3 s in one turn."""
    with LoopTurns(broker) as turns:
        for attempt in range(3):
            wanted = {f"{attempt} {number} " + "x" * 32_700: [("events", 0)] for number in range(31)}
            assert fetch_many(client, wanted) == {key: {("events", 0): NOTHING} for key in wanted}
        assert turns.longest.seconds < 4 * LONGEST_S, turns.turns


def test_all_of_it_is_there_after_a_start(start_broker: StartBroker) -> None:
    """And what was removed is not: offsets, groups, topics. Written with a codec, one that is given by number as in Kafka."""
    broker = start_broker(offsets_topic_num_partitions=3, offsets_topic_compression_codec=3, group_initial_rebalance_delay_ms=0)
    for name in ("events", "going"):
        broker.create_topic(name, 2)
    both = {("events", 0): Offset(3, 1, "x"), ("going", 1): Offset(4)}
    with broker.client() as client:
        for group in ("one", "two", "removed", "forgotten", "only"):
            commit(client, group, {("going", 0): Offset(1)} if group == "only" else both)
        delete_groups(client, "removed")
        delete_offsets(client, "forgotten", both)
        with member(broker, "one", ["events"], instance_id="static") as reader:
            assert client.ask(DeleteTopicsRequest(topic_names=["going"], timeout_ms=1000), 5).responses[0].error_code == 0
            # The group that had read nothing else is gone with it.
            assert groups_of(client) == {"one", "two"}
    broker.stop()
    broker.start()
    loaded(broker)
    with broker.client() as client:
        assert groups_of(client) == {"one", "two"}
        assert fetch_many(client, {"one": None, "two": None}) == {
            group: {("events", 0): Offset(3, 1, "x")} for group in ("one", "two")
        }
        one = {("events", 0): Offset(9)}
        who: dict[str, Any] = {"member_id": reader.member_id, "generation_id_or_member_epoch": reader.generation_id}
        assert commit(client, "one", one, group_instance_id="static", **who) == {("events", 0): 0}
        with Member(broker.address, "one", instance_id="static", protocols=reader.protocols) as back:
            # It is who it was: nobody rebalances.
            back.join()
            assert back.joined().generation_id == reader.generation_id
            back.sync()
            assert back.synced().assignment == b"assigned"


def test_more_partitions_and_none(start_broker: StartBroker) -> None:
    """Groups outlive that ``__consumer_offsets`` gets more partitions; with the topic they go, and who waits is reported so."""
    broker = start_broker(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0)
    broker.create_topic("events", 2)
    one, two = {("events", 0): Offset(1)}, {("events", 0): Offset(2)}
    names = ["a", "b", "c", "d"]
    with broker.client() as client:
        for name in names:
            commit(client, name, one)
        broker.on_loop(lambda: broker.node.manager.add_partitions("__consumer_offsets", 3))
        assert {broker.node.groups.log.partition_of(name) for name in names} == {0, 1, 2}
        for name in ("c", "d"):
            commit(client, name, two)
    broker.stop()
    broker.start()
    loaded(broker)
    with broker.client() as client:
        assert fetch_many(client, dict.fromkeys(names)) == {"a": one, "b": one, "c": two, "d": two}
        with member(broker, "a", instance_id="first") as first, Member(broker.address, "a", instance_id="second") as second:
            second.join()
            while first.heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:
                pass  # Then the second one waits.
            assert (
                client.ask(DeleteTopicsRequest(topic_names=["__consumer_offsets"], timeout_ms=1000), 5).responses[0].error_code
                == 0
            )
            assert second.joined().error_code == ErrorCode.NOT_COORDINATOR
        assert groups_of(client) == set()
        assert fetch(client, "a") == {}
        assert commit(client, "a", one) == {("events", 0): 0}


def test_a_broker_that_loads_says_so(start_broker: StartBroker) -> None:
    broker = start_broker(offsets_topic_num_partitions=1)
    broker.create_topic("events", 1)
    one = {("events", 0): Offset(1)}
    with broker.client() as client:
        commit(client, "group", one)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    groups = broker.node.groups
    broker.on_loop(lambda: groups.log._loads.update({0: object()}))
    with broker.client() as client:
        assert commit(client, "group", one) == {("events", 0): loading}
        for version in range(1, 10):
            assert fetch(client, "group", [*one], version) == (
                {("events", 0): Offset(-1, error_code=loading)} if version < 2 else loading
            )
        assert delete_groups(client, "group") == {"group": loading}
        assert delete_offsets(client, "group", one) == loading
    broker.on_loop(groups.log._loads.clear)


@pytest.mark.parametrize("topics", [["events"], MANY_TOPICS], ids=["one topic", "many topics"])
def test_what_expires(start_broker: StartBroker, topics: list[str]) -> None:
    """A week after the group became empty, or after the commit where there never was a member; what has its own time, then."""
    clock = ManualClock(NOW_MS)
    broker = start_broker(clock=clock, offsets_topic_num_partitions=2, group_initial_rebalance_delay_ms=0)
    broker.create_topic("events", 3)
    broker.create_topic("other", 1)
    with broker.client() as client:

        def pass_by(milliseconds: int) -> None:
            clock.advance(milliseconds)
            broker.on_loop(broker.running.tick)

        def offsets(group: str) -> set[tuple[str, int]]:
            found = fetch(client, group)
            assert isinstance(found, dict)
            return set(found)

        def become(group: str, expected: set[tuple[str, int]]) -> None:
            """Groups are looked at in turns with requests: on a slow machine one of these may come between two of them."""
            wait_until(lambda: offsets(group) == expected, f"{group} to have {expected}")

        with member(broker, "subscribed", topics, session_timeout_ms=1_800_000) as reader:
            who: dict[str, Any] = {"member_id": reader.member_id, "generation_id_or_member_epoch": reader.generation_id}
            commit(client, "subscribed", {("events", 0): Offset(1), ("other", 0): Offset(1)}, **who)
            commit(client, "alone", {("events", 0): Offset(1)})
            commit(client, "alone", {("events", 1): Offset(1)}, 1, timestamp=NOW_MS - 6 * DAY_MS)
            commit(client, "alone", {("events", 2): Offset(1)}, 4, retention_time_ms=9 * DAY_MS)
            for _ in range(7 * 24 * 2 - 1):
                pass_by(1_800_000 - 1000)
                assert not reader.heartbeat()
                if clock.now_ms() < NOW_MS + DAY_MS - 3_600_000:
                    assert offsets("alone") == {("events", 0), ("events", 1), ("events", 2)}
            become("alone", {("events", 0), ("events", 2)})
            assert offsets("subscribed") == {("events", 0), ("other", 0)}
            pass_by(1_700_000)
            assert not reader.heartbeat()
            pass_by(1_000_000)
            become("alone", {("events", 2)})
            # What nobody subscribes to goes by its commit, what the group reads stays.
            become("subscribed", {("events", 0)})
            reader.leave()
        pass_by(3 * DAY_MS)
        wait_until(lambda: groups_of(client) == {"subscribed"}, "offsets with their own time to expire")
        pass_by(4 * DAY_MS - 1_000_000)
        assert offsets("subscribed") == {("events", 0)}
        pass_by(2_000_000)
        wait_until(lambda: not groups_of(client), "the last group to expire")
    broker.stop()
    broker.start()
    assert loaded(broker).all() == []


def test_a_disk_that_refuses(start_broker: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing changes that could not be written; the groups have no coordinator until the disk is back."""
    broker = start_broker(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0)
    broker.create_topic("events", 1)
    one, two = {("events", 0): Offset(1)}, {("events", 0): Offset(2)}
    groups = broker.node.groups
    with broker.client() as client:
        commit(client, "group", one)
        group = groups.get("group")
        assert group is not None
        broker.on_loop(lambda: broker.node.manager.log("__consumer_offsets", 0).go_offline("a test", OSError("broken")))
        for code in (
            commit(client, "group", two)["events", 0],
            fetch(client, "group"),
            delete_groups(client, "group")["group"],
            delete_offsets(client, "group", one),
            broker.on_loop(lambda: groups.store(group)),
            broker.on_loop(lambda: done(groups.remove(group))),
        ):
            assert code == ErrorCode.NOT_COORDINATOR
        assert groups.all() == [group]
        broker.on_loop(lambda: broker.node.manager.bring_online("__consumer_offsets", 0))
        assert fetch(client, "group") == one
        assert commit(client, "group", two) == {("events", 0): 0}
    assert "'group': cannot write the group's records to __consumer_offsets" in caplog.text


def test_nothing_expires_in_a_folder_from_elsewhere(start_broker: StartBroker) -> None:
    """Until somebody commits: then it is a folder like any other, and compacted too."""
    clock = ManualClock(NOW_MS)
    broker = start_broker(clock=clock, offsets_topic_num_partitions=1)
    broker.create_topic("events", 1)
    one = {("events", 0): Offset(1)}
    with broker.client() as client:
        commit(client, "old", one)
    broker.stop()
    forget(broker.data_dir)
    clock.advance(30 * DAY_MS)
    broker.start()
    groups = loaded(broker)
    broker.on_loop(groups.expire)
    with broker.client() as client:
        assert fetch(client, "old") == one
        commit(client, "new", one)
        broker.on_loop(groups.expire)
        wait_until(lambda: fetch(client, "old") == {}, "the offset to expire")
        assert fetch(client, "new") == one
    assert broker.on_loop(lambda: broker.node.topics.properties("__consumer_offsets"))["cleanup.policy"] == "compact"
