"""The parts of a ZooKeeper cluster's broker that need neither: protocol versions, properties, the broker's znode, the image."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import replace

import pytest

from tests.broker.cluster.zookeeper_requests import broker, led, metadata, partition, topic
from tidelog.broker.cluster.zookeeper.cluster_state import led_states, take_led, take_metadata
from tidelog.broker.cluster.zookeeper.znode_values import broker_znode
from tidelog.broker.requests.listeners import Listener, loopback
from tidelog.broker.settings.protocol_version import (
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    WRITE_TXN_MARKERS,
    ProtocolVersion,
)
from tidelog.broker.settings.server_properties import sort_properties
from tidelog.errors import InvalidArgumentError
from tidelog.metadata.assumed_topic_id import AssumedTopicId, known_topic_id
from tidelog.metadata.image import MetadataImage
from tidelog.model import TopicPartition
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.steps import run_steps
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.list_offsets import ListOffsetsRequest
from tidelog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tidelog.wire.messages.update_metadata import LEADER_DURING_DELETE
from tidelog.wire.messages.write_txn_markers import WriteTxnMarkersRequest

ID = uuid.UUID(int=77)


class TestProtocolVersion:
    @pytest.mark.parametrize(
        ("text", "fetch", "list_offsets", "epochs", "registration", "shutdown"),
        [
            ("0.9.0", 1, 0, None, 2, 1),
            ("0.9.0.X", 1, 0, None, 2, 1),
            ("0.9.0.1", 1, 0, None, 2, 1),
            ("0.10.0-IV0", 2, 0, None, 2, 1),
            ("0.10.0", 2, 0, None, 4, 1),
            ("0.10.2", 3, 1, None, 4, 1),
            ("0.11.0", 5, 2, 0, 4, 1),
            ("1.1", 7, 2, 0, 4, 1),
            ("2.4", 11, 5, 3, 4, 3),
            ("2.8", 12, 6, 4, 5, 3),
            ("3.9", 17, 8, 4, 5, 3),
            ("3.9-IV0", 17, 8, 4, 5, 3),
            ("3.9.1", 17, 8, 4, 5, 3),
        ],
    )
    def test_what_it_stands_for(self, text, fetch, list_offsets, epochs, registration, shutdown):
        protocol = ProtocolVersion(text)
        assert protocol.versions[FETCH] == (fetch, fetch)
        assert protocol.versions[LIST_OFFSETS] == (list_offsets, list_offsets)
        assert protocol.versions.get(OFFSET_FOR_LEADER_EPOCH) == (None if epochs is None else (epochs, epochs))
        assert (protocol.registration, protocol.controlled_shutdown) == (registration, shutdown)

    @pytest.mark.parametrize(
        ("text", "group", "offset", "magic"),
        [
            ("0.9.0.1", 0, 1, 0),
            ("0.10.0", 0, 1, 1),
            ("0.10.1-IV0", 1, 1, 1),
            ("0.11.0", 1, 1, 2),
            ("2.0", 1, 1, 2),
            ("2.1-IV0", 2, 2, 2),
            ("2.1", 2, 3, 2),
            ("2.3", 3, 3, 2),
            ("3.9", 3, 3, 2),
        ],
    )
    def test_what_is_written_into_logs(self, text, group, offset, magic):
        protocol = ProtocolVersion(text)
        assert (protocol.group_value, protocol.offset_value, protocol.newest_magic) == (group, offset, magic)

    def test_keys(self):
        found = {cls.API_KEY for cls in (FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest, WriteTxnMarkersRequest)}
        assert found == {FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, WRITE_TXN_MARKERS}

    def test_order(self):
        steps = ["0.9.0", "0.10.0-IV0", "0.10.0", "0.10.1-IV1", "0.11.0", "1.0", "2.7-IV1", "2.7", "2.8", "3.0-IV0", "3.9"]
        for at, text in enumerate(steps):
            assert [ProtocolVersion(text).is_at_least(other) for other in steps] == [n <= at for n in range(len(steps))]

    def test_what_changes_the_cluster(self):
        seen = [(one.has_alter_partition, one.has_message_formats) for one in map(ProtocolVersion, VERSIONS)]
        assert seen == [(False, True), (True, True), (True, True), (True, False)]

    @pytest.mark.parametrize("text", ["", "0.8.2", "4.0", "new", "3.9-IVx", "3"])
    def test_none(self, text):
        with pytest.raises(InvalidArgumentError, match=r"inter\.broker\.protocol\.version"):
            ProtocolVersion(text)


VERSIONS = ("2.4", "2.7", "2.8", "3.0")


class TestProperties:
    def test_a_file_of_zookeepers_days(self):
        found = sort_properties(
            {
                "broker.id": "3",
                "zookeeper.connect": "zk-1,zk-2:2182/kafka/a/",
                "zookeeper.session.timeout.ms": "6000",
                "inter.broker.protocol.version": "0.9.0.X",
                "num.replica.fetchers": "2",
            }
        )
        cluster = found.config.cluster
        assert cluster is not None and cluster.zookeeper is not None
        assert (cluster.node_id, cluster.num_replica_fetchers) == (3, 2)
        assert cluster.zookeeper.connect == "zk-1:2181,zk-2:2182/kafka/a"
        assert (cluster.zookeeper.session_timeout_ms, cluster.zookeeper.connection_timeout_ms) == (6000, 6000)
        assert found.manager["message.format.version"] == "0.9.0"
        assert (found.unused, found.unknown) == ((), ())

    def test_a_format_that_others_could_not_fetch(self):
        given = {"broker.id": "3", "zookeeper.connect": "zk", "inter.broker.protocol.version": "0.10.0"}
        assert sort_properties({**given, "log.message.format.version": "0.9.0"}).manager["message.format.version"] == "0.9.0"
        with pytest.raises(InvalidArgumentError, match=r"newer than inter\.broker\.protocol\.version=0\.10\.0"):
            sort_properties({**given, "log.message.format.version": "0.11.0"})

    def test_a_topics_format_that_others_could_not_fetch(self, caplog):
        manager = ManagerConfig(is_member=True, has_message_formats=True, newest_magic=1)
        assert manager.topic_config({"message.format.version": "0.9.0"}).magic == 0
        assert not caplog.records
        manager = replace(manager, topic_defaults={"message.format.version": "0.10.0"})
        assert manager.topic_config({}).magic == 1
        assert manager.topic_config({"message.format.version": "0.9.0"}).magic == 0
        assert manager.topic_config({"message.format.version": "2.4"}).magic == 1
        assert "message.format.version=2.4 is skipped" in caplog.text

    def test_formats_are_the_protocols_until_3_0(self):
        def default(**properties: str) -> object:
            given = {
                "broker.id": "3",
                "zookeeper.connect": "zk",
                **{key.replace("_", "."): one for key, one in properties.items()},
            }
            return sort_properties(given).manager.get("message.format.version")

        assert default(inter_broker_protocol_version="2.4") == "2.4"
        assert default(inter_broker_protocol_version="2.4", log_message_format_version="0.10.0") == "0.10.0"
        assert default() is None

    @pytest.mark.parametrize("text", ["/kafka", "zk:port", ",", "zk-1:2181,:2182"])
    def test_no_servers(self, text):
        with pytest.raises(InvalidArgumentError, match=r"zookeeper\.connect"):
            sort_properties({"broker.id": "3", "zookeeper.connect": text})

    @pytest.mark.parametrize("name", ["zookeeper.ssl.client.enable", "zookeeper.set.acl"])
    def test_less_than_it_says(self, name):
        """A broker that ignored these would be less protected than its owner believes."""
        given = {"broker.id": "3", "zookeeper.connect": "zk"}
        with pytest.raises(InvalidArgumentError, match=name.replace(".", r"\.")):
            sort_properties({**given, name: "true"})
        assert sort_properties({**given, name: "false"}).config.cluster is not None
        assert sort_properties({"broker.id": "3", name: "true"}).config.cluster is None

    def test_an_authorizer(self):
        given = {"broker.id": "3", "zookeeper.connect": "zk", "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
        with pytest.raises(InvalidArgumentError, match="has no authorizer"):
            sort_properties(given)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("broker.id", "x"),
            ("broker.id", "-1"),
            ("zookeeper.session.timeout.ms", "6s"),
            ("zookeeper.session.timeout.ms", "0"),
            ("zookeeper.connection.timeout.ms", "-1"),
            ("inter.broker.protocol.version", "4.0"),
            ("controlled.shutdown.max.retries", "many"),
        ],
    )
    def test_values_of_the_wrong_kind(self, name, value):
        """One error, which names the property."""
        with pytest.raises(InvalidArgumentError, match=r"node\.id|" + name.replace(".", r"\.")):
            sort_properties({"broker.id": "3", "zookeeper.connect": "zk", "inter.broker.protocol.version": "2.4", name: value})

    def test_an_id_is_needed(self):
        with pytest.raises(InvalidArgumentError, match=r"node\.id"):
            sort_properties({"zookeeper.connect": "zk"})

    def test_empty_is_alone(self):
        assert sort_properties({"broker.id": "3", "zookeeper.connect": " "}).config.cluster is None


class TestZnode:
    def test_versions(self):
        listeners = (loopback(9092), Listener("INSIDE", "", 9093, "::1", 9093))
        found = {version: json.loads(broker_znode(version, listeners, "a", 5)) for version in (2, 4, 5)}
        old = {
            "version": 2,
            "host": "127.0.0.1",
            "port": 9092,
            "jmx_port": -1,
            "timestamp": "5",
            "endpoints": ["PLAINTEXT://127.0.0.1:9092", "INSIDE://[::1]:9093"],
        }
        assert found[2] == old
        named = {"PLAINTEXT": "PLAINTEXT", "INSIDE": "PLAINTEXT"}
        assert found[4] == {**old, "version": 4, "rack": "a", "listener_security_protocol_map": named}
        assert found[5] == {**found[4], "version": 5, "features": {}}


class TestClusterState:
    def test_metadata(self):
        image = MetadataImage()
        first = metadata([broker(1, rack="a"), broker(2)], [topic("t", partition(0, 1, 3, [1, 2]), partition(1, -1, 4, [2]))])
        delta = run_steps(take_metadata(image, first, "PLAINTEXT"))
        assert delta.brokers == {1, 2} and set(delta.created_topics.values()) == {"t"}
        assert (image.brokers[1].rack, image.brokers[2].end_points[0].port) == ("a", 9002)
        record = image.partition("t", 0)
        assert record is not None and (record.leader, record.leader_epoch, record.replicas) == (1, 3, [1, 2])
        again = run_steps(take_metadata(image, metadata([broker(1, rack="a"), broker(2)], []), "PLAINTEXT"))
        assert again.is_empty

    def test_brokers_go_and_topics_are_deleted(self):
        image = MetadataImage()
        run_steps(take_metadata(image, metadata([broker(1), broker(2)], [topic("t", partition(0), partition(1))]), "PLAINTEXT"))
        gone = topic("t", partition(0, LEADER_DURING_DELETE))
        delta = run_steps(take_metadata(image, metadata([broker(1)], [gone]), "PLAINTEXT"))
        assert (delta.brokers, delta.deleted_topics, image.partition("t", 0)) == ({2}, {}, None)
        assert not list(delta.changed_partitions())
        delta = run_steps(
            take_metadata(image, metadata([broker(1)], [topic("t", partition(1, LEADER_DURING_DELETE))]), "PLAINTEXT")
        )
        assert list(delta.deleted_topics.values()) == ["t"] and "t" not in image.topics

    def test_a_topic_without_an_id_gets_one(self):
        """It stays the same topic: nothing is deleted, all of its partitions are looked at again."""
        image = MetadataImage()
        run_steps(take_metadata(image, metadata([broker(1)], [topic("t", partition(0), partition(1))]), "PLAINTEXT"))
        before = image.topics["t"].topic_id
        assert isinstance(before, AssumedTopicId) and known_topic_id(before) is None
        request = led(topic("t", partition(0, epoch=1), topic_id=ID))
        delta = run_steps(take_led(image, led_states(request), [], "PLAINTEXT"))
        assert image.topics["t"].topic_id == ID and before not in image.topics_by_id
        assert (delta.deleted_topics, delta.created_topics, delta.partitions) == ({}, {}, {ID: {0, 1}})
        assert {record.topic_id for _, record in delta.changed_partitions()} == {ID}
        # Nobody says the id any more: it is kept.
        run_steps(take_metadata(image, metadata([broker(1)], [topic("t", partition(0, epoch=2))]), "PLAINTEXT"))
        assert image.topics["t"].topic_id == ID

    def test_another_id_is_another_topic(self):
        image = MetadataImage()
        run_steps(take_metadata(image, metadata([broker(1)], [topic("t", partition(0), topic_id=ID)]), "PLAINTEXT"))
        other = uuid.UUID(int=78)
        delta = run_steps(take_metadata(image, metadata([broker(1)], [topic("t", partition(0), topic_id=other)]), "PLAINTEXT"))
        assert (delta.deleted_topics, delta.created_topics) == ({ID: "t"}, {other: "t"})

    def test_leaders_are_known_by_their_addresses(self):
        image = MetadataImage()
        request = led(topic("t", partition(0, 2, 1, [1, 2])), leaders=[2])
        run_steps(take_led(image, led_states(request), request.live_leaders, "INSIDE"))
        assert [(one.name, one.port) for one in image.brokers[2].end_points] == [("INSIDE", 9002)]

    @pytest.mark.parametrize("seed", range(20))
    def test_the_old_and_the_new_form_say_the_same(self, seed):
        """Whatever comes, in whatever form, the image is what it names last."""
        rng = random.Random(seed)
        images = MetadataImage(), MetadataImage()
        expected: dict[TopicPartition, int] = {}
        for epoch in range(30):
            name, number = rng.choice("ab"), rng.randrange(3)
            leader = rng.choice((1, 2, -1, LEADER_DURING_DELETE))
            state = topic(name, partition(number, leader, epoch, [1, 2]))
            for image, is_old in zip(images, (False, True), strict=True):
                run_steps(take_metadata(image, metadata([broker(1), broker(2)], [state], is_old=is_old), "PLAINTEXT"))
            if leader == LEADER_DURING_DELETE:
                expected.pop(TopicPartition(name, number), None)
            else:
                expected[TopicPartition(name, number)] = leader
        for image in images:
            found = {
                TopicPartition(one.name, number): record.leader
                for one in image.topics.values()
                for number, record in one.partitions.items()
            }
            assert found == expected
