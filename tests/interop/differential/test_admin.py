"""Metadata and the admin APIs, asked of Kafka 3.9.1 and of Tidelog in every version: generated requests, good and bad.

Kafka's lists of results have no order of their own, so both sides' are sorted. What one of them changes is asked of both until
Kafka has told its broker, which takes it a moment.

Left out of the comparison, each listed in docs/broker.md: properties that are Tidelog's own; what properties mean, in whose
words; the broker's own properties as far as they are not here, and whether they can be changed.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.record_sets import build, records
from tests.interop.differential.requests import produce
from tidelog.broker.configs.config_changes import BROKER, BROKER_LOGGER, CLIENT_METRICS, TOPIC
from tidelog.wire.codec import Message
from tidelog.wire.messages import alter_configs as alter_messages
from tidelog.wire.messages import incremental_alter_configs as incremental_messages
from tidelog.wire.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

TIMEOUT_MS = 30_000
PROPAGATION_S = 60
THERE = ("admin-a", "admin.b", "admin-c")

MadeFor = Callable[[Side], Message]


def in_order(value: Any) -> Any:
    """Return an answer with its lists sorted, without Tidelog's own properties and without what properties mean."""
    if isinstance(value, dict):
        return {key: bool(one) if key == "documentation" else in_order(one) for key, one in value.items() if key != "is_default"}
    if isinstance(value, list):
        kept = [in_order(one) for one in value if not (isinstance(one, dict) and str(one.get("name")).startswith("tidelog."))]
        return kept if kept and "source" in kept[0] else sorted(kept, key=repr)
    return value


def ask(pair: Pair, label: str, message: Message | MadeFor, version: int, *, settles: bool = False) -> Any:
    """Ask both, and compare; with `settles`, ask Kafka until it answers alike, for a while. Return Kafka's answer."""
    made = [message(side) if callable(message) else message for side in pair.sides]
    tidelog = in_order(pair.tidelog.ask(made[1], version, has_answer=True))
    deadline = time.monotonic() + (PROPAGATION_S if settles else 0)
    while True:
        kafka = in_order(pair.kafka.ask(made[0], version, has_answer=True))
        if kafka == tidelog or time.monotonic() >= deadline:
            break
        time.sleep(0.05)
    pair.asked += 1
    pair.compare(f"{label} v{version}", kafka, tidelog)
    return kafka


def node_id(side: Side) -> int:
    return side.broker_id


@pytest.fixture(scope="module", autouse=True)
def topics(pair: Pair) -> None:
    pair.create("admin-a", partitions=2, retention_ms=5000, cleanup_policy="compact, delete")
    pair.create("admin.b")
    pair.create("admin-c", partitions=3)


# --- metadata


def named(*names: str | None, create: bool = False, ids: Iterable[uuid.UUID] = (), **more: bool) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names] + [MetadataRequestTopic(name=None, topic_id=one) for one in ids]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **more)


@pytest.mark.parametrize("version", range(13))
def test_metadata(pair: Pair, version: int) -> None:
    ask(pair, "known topics", named(*THERE, "admin-a"), version)
    ask(pair, "internal", named("__consumer_offsets") if version >= 4 else named(), version)
    if version >= 1:
        ask(pair, "none", named(), version)
    if version >= 4:
        ask(pair, "unknown, illegal", named("nowhere", "a b", "", ".", "x" * 249, "x" * 250), version)
    if version >= 8:
        operations = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": version <= 10}
        ask(pair, "operations", named("admin-a", "nowhere", **operations), version)
    if version >= 10:
        unknown = uuid.uuid4()
        ask(pair, "by id", lambda side: named(ids=[side.topic_ids["admin-a"], unknown]), version)
        ask(pair, "by id and name", lambda side: named("admin.b", ids=[side.topic_ids["admin-a"]]), version)
        ask(pair, "neither id nor name", named(None), version)
        ask(pair, "neither, and one with a name", named("admin-a", None), version)
    fresh = f"fresh-{version}"
    ask(pair, "created for the next who asks", named(fresh, "a b", create=True), version)
    pair.wait_for(pair.kafka, (fresh,))
    pair.wait_for(pair.tidelog, (fresh,))
    ask(pair, "created", named(fresh), version)
    pair.check()


# --- topics


def creatable(rng: random.Random, name: str, node: int) -> CreatableTopic:
    """A topic that may be created, or not, for one reason or several."""
    configs = []
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        key, values = rng.choice(list(PROPERTIES.items()))
        configs.append(CreatableTopicConfig(key, rng.choice(values)))
    configs = list({config.name: config for config in configs}.values())
    if rng.random() < 0.3:
        brokers = [[node], [node], [node], [node, node], [], [77]]
        indexes = rng.choice(([0], [0, 1], [1, 0], [1], [0, 2], [-1]))
        assignments = [CreatableReplicaAssignment(index, list(rng.choice(brokers))) for index in indexes]
        return CreatableTopic(name, rng.choice((-1, -1, -1, 1)), rng.choice((-1, -1, -1, 1)), assignments, configs)
    return CreatableTopic(name, rng.choice((-1, 1, 2, 3, 0, -2)), rng.choice((-1, 1, 1, 1, 0, -2, 2)), [], configs)


PROPERTIES: dict[str, tuple[str | None, ...]] = {
    "retention.ms": ("5", " 6 ", "-1", "-2", "x", "", None, "+7", "1_0", "9223372036854775807", "9223372036854775808", "1.5"),
    "segment.bytes": ("14", "13", "2147483647", "2147483648"),
    "cleanup.policy": (
        "compact",
        "delete",
        "compact,delete",
        "delete , compact",
        "",
        "Compact",
        "compact,",
        "shrink",
        "delete,delete",
    ),
    "compression.type": ("lz4", "producer", "LZ4", "uncompressed", "none", " gzip "),
    "compression.gzip.level": ("1", "9", "0", "10", "-1"),
    "compression.lz4.level": ("1", "17", "0", "18"),
    "compression.zstd.level": ("3", "22", "23", "-131072", "-131073"),
    "min.cleanable.dirty.ratio": ("0", "1", "0.25", "1.01", "-0.1", "half"),
    "preallocate": ("true", "FALSE", " true ", "yes"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "logappendtime"),
    "message.format.version": ("0.10.0", "2.8", "3.0-IV1"),
    "min.compaction.lag.ms": ("0", "10", "-1"),
    "max.compaction.lag.ms": ("5", "0"),
    "min.insync.replicas": ("1", "2", "0"),
    "leader.replication.throttled.replicas": ("*", "0:1,1:1", "0:1, 1:1", "0-1", ""),
    "local.retention.ms": ("-2", "-3", "10"),
    "remote.storage.enable": ("true", "false"),
    "unclean.leader.election.enable": ("true", "maybe"),
    "message.downconversion.enable": ("false",),
    "log.retention.ms": ("5",),
    "nothing": ("5", None),
}


def distinct(names: list[str]) -> list[str]:
    """Leave out what only collides within the request: Kafka creates both, see docs/broker.md."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.replace(".", "_"), name)
    return list(found.values())


@pytest.mark.parametrize("seed", range(4))
def test_create_topics(pair: Pair, seed: int) -> None:
    """Whatever may be said of a topic, and whatever may be wrong with it."""
    rng = random.Random(seed)
    for number in range(40):
        version = rng.choice(range(8))
        validate_only = version >= 1 and rng.random() < 0.7
        fresh = [f"new-{seed}-{number}-{index}" for index in range(4)]
        names = distinct([rng.choice((one, one, one, *THERE, "admin_b", "a b", "", "..", "__cluster_metadata")) for one in fresh])
        seeds = [rng.random() for _ in names]

        def made_for(
            side: Side, names: list[str] = names, seeds: list[float] = seeds, validate_only: bool = validate_only
        ) -> CreateTopicsRequest:
            topics = [creatable(random.Random(one), name, side.broker_id) for name, one in zip(names, seeds, strict=True)]
            return CreateTopicsRequest(topics, TIMEOUT_MS, validate_only)

        ask(pair, f"create {'(validated)' if validate_only else ''}", made_for, version)
    pair.check()


def test_topics_named_twice_and_too_many(pair: Pair) -> None:
    def topic(name: str, partitions: int = 1) -> CreatableTopic:
        return CreatableTopic(name, partitions, 1)

    for version in (1, 7):
        twice = [topic("t"), topic("u"), topic("t"), topic("__cluster_metadata"), topic("__cluster_metadata")]
        ask(pair, "twice", CreateTopicsRequest(twice, TIMEOUT_MS, True), version)
        ask(pair, "no topic", CreateTopicsRequest([], TIMEOUT_MS, True), version)
        for partitions in ([9_999], [10_000], [6_000, 6_000, 1], [2**31 - 1]):
            topics = [topic(f"many-{index}", count) for index, count in enumerate(partitions)]
            ask(pair, f"{partitions} partitions", CreateTopicsRequest(topics, TIMEOUT_MS, True), version)
    pair.check()


@pytest.mark.parametrize("version", range(7))
def test_delete_topics(pair: Pair, version: int) -> None:
    names = [f"gone-{version}-{letter}" for letter in "abcde"]
    pair.create(*names)
    if version < 6:
        ask(
            pair,
            "delete",
            DeleteTopicsRequest(topic_names=[names[0], "nowhere", names[1], names[1], "", "a b"], timeout_ms=TIMEOUT_MS),
            version,
        )
    else:
        unknown = uuid.uuid4()

        def by_all_means(side: Side) -> DeleteTopicsRequest:
            ids = [side.topic_ids[name] for name in names]
            states = [
                DeleteTopicState(names[0]),
                DeleteTopicState("nowhere"),
                DeleteTopicState(names[1]),
                DeleteTopicState(names[1]),
            ]
            states += [DeleteTopicState(None, one) for one in (ids[2], unknown, ids[3])]
            states += [DeleteTopicState(names[3]), DeleteTopicState(names[4], ids[4]), DeleteTopicState(None)]
            return DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS)

        ask(pair, "delete", by_all_means, version)
    ask(pair, "what is left", named(*names), 8, settles=True)
    pair.check()


@pytest.mark.parametrize("version", range(4))
def test_create_partitions(pair: Pair, version: int) -> None:
    name = f"grows-{version}"
    pair.create(name, partitions=2)

    def more(count: int, *replicas: list[int] | None, of: str = name, by_hand: bool = False, dry: bool = False) -> MadeFor:
        def made_for(side: Side) -> CreatePartitionsRequest:
            assignments = [CreatePartitionsAssignment([side.broker_id] if ids is None else ids) for ids in replicas]
            topic = CreatePartitionsTopic(of, count, assignments if replicas or by_hand else None)
            return CreatePartitionsRequest([topic], TIMEOUT_MS, dry)

        return made_for

    for count in (2, 1, 0, -1):
        ask(pair, f"to {count}", more(count), version)
    ask(pair, "unknown", more(3, of="nowhere"), version)
    ask(pair, "too few by hand", more(4, None), version)
    ask(pair, "none by hand", more(3, by_hand=True), version)
    ask(pair, "elsewhere", more(3, [77]), version)
    ask(pair, "nowhere", more(3, []), version)
    ask(pair, "validated", more(3, dry=True), version)
    twice = [CreatePartitionsTopic(name, 3), CreatePartitionsTopic(name, 4), CreatePartitionsTopic("nowhere", 1)]
    ask(pair, "twice", CreatePartitionsRequest(twice, TIMEOUT_MS), version)
    ask(pair, "one more", more(3), version)
    ask(pair, "two more", more(5, None, None), version)
    ask(pair, "what is there", named(name), 8, settles=True)
    pair.check()


# --- records


def fill(pair: Pair, topic: str, rng: random.Random) -> None:
    """Append ten records to partition 0. A leader of Kafka's refuses for a moment after metadata has named it."""
    ask(pair, f"fill {topic}", produce(topic, build(records(10, rng), 2)), 7, settles=True)


@pytest.mark.parametrize("version", range(3))
def test_delete_records(pair: Pair, version: int) -> None:
    name, compacted = f"records-{version}", f"compacted-{version}"
    pair.create(name, partitions=2)
    pair.create(compacted, cleanup_policy="compact")
    fill(pair, name, random.Random(version))

    def to(*wanted: tuple[str, int, int]) -> DeleteRecordsRequest:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for topic, partition, offset in wanted:
            topics.setdefault(topic, []).append(DeleteRecordsPartition(partition, offset))
        return DeleteRecordsRequest([DeleteRecordsTopic(topic, partitions) for topic, partitions in topics.items()], TIMEOUT_MS)

    for offset in (0, 3, 2, 3, 11, -2, 2**62, 4, -1, 10):
        ask(pair, f"to {offset}", to((name, 0, offset)), version)
    ask(pair, "an empty one", to((name, 1, 0), (name, 1, 1), (name, 1, -1)), version)
    ask(pair, "several", to((name, 0, -1), (name, 7, 0), (name, -1, 0), (compacted, 0, 0), ("nowhere", 0, 0)), version)
    ask(pair, "nothing", to(), version)
    ask(pair, "no partition", DeleteRecordsRequest([DeleteRecordsTopic(name, [])], TIMEOUT_MS), version)
    pair.check()


# --- properties


def describe(name: str, kind: int = TOPIC, keys: list[str] | None = None, **more: bool) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)], **more)


@pytest.mark.parametrize("version", range(5))
def test_describe_configs(pair: Pair, version: int) -> None:
    more = {"include_synonyms": version >= 1, "include_documentation": version >= 3}
    for name in (*THERE, "nowhere", "a b", ""):
        ask(pair, f"topic {name}", describe(name, **more), version)
    for keys in ([], ["retention.ms"], ["nothing"], ["retention.ms", "cleanup.policy", "retention.ms"]):
        ask(pair, f"{keys}", describe("admin-a", keys=keys), version)
    for kind, names in {BROKER: ("", "77", "x"), BROKER_LOGGER: ("", "77", "x"), CLIENT_METRICS: ("", "s"), 99: ("x",)}.items():
        for name in names:
            ask(pair, f"type {kind} {name!r}", describe(name, kind), version)
    if version >= 1:
        of_broker(pair, version)
    pair.check()


def of_broker(pair: Pair, version: int) -> None:
    """Each property that Tidelog reports the broker, and Kafka too; but for addresses, folders and sockets' sizes."""
    of_both = {}
    for side in pair.sides:
        side.ask(describe(str(side.broker_id), BROKER, include_synonyms=True), version, has_answer=True)
        of_both[side.name] = {one.name: one for one in side.last.results[0].configs}
    names = sorted(of_both["Kafka"].keys() & of_both["Tidelog"].keys())
    assert len(names) > 60
    own = {"node.id", "broker.id", "log.dir", "log.dirs", "log.cleaner.dedupe.buffer.size", "socket.listen.backlog.size"}
    own |= {"socket.receive.buffer.bytes", "socket.send.buffer.bytes"}
    own |= {name for name in names if "listener" in name}
    for name in names:
        kafka, tidelog = (
            (one.value, one.config_type, synonyms(one), one.read_only, one.is_sensitive)
            for one in (side[name] for side in of_both.values())
        )
        if name not in own:
            pair.compare(f"broker's {name} v{version}", list(kafka), list(tidelog))


def synonyms(entry: Any) -> list[list[Any]]:
    return [[one.name, one.value, one.source] for one in entry.synonyms]


def change(*changes: tuple[str, int, str | None], name: str = "admin-c", kind: int = TOPIC, dry: bool = False) -> Message:
    configs = [incremental_messages.AlterableConfig(key, how, value) for key, how, value in changes]
    resource = incremental_messages.AlterConfigsResource(kind, name, configs)
    return incremental_messages.IncrementalAlterConfigsRequest([resource], dry)


def replace(*configs: tuple[str, str | None], name: str = "admin-c", kind: int = TOPIC, dry: bool = False) -> Message:
    settings = [alter_messages.AlterableConfig(key, value) for key, value in configs]
    return alter_messages.AlterConfigsRequest([alter_messages.AlterConfigsResource(kind, name, settings)], dry)


@pytest.mark.parametrize("seed", range(3))
def test_alter_configs(pair: Pair, seed: int) -> None:
    """One property after the other, set, deleted, added to, taken from, all replaced: good values and bad ones."""
    rng = random.Random(seed)
    for _ in range(40):
        name = rng.choice(("admin-c",) * 6 + ("nowhere", "a b", ""))
        dry = rng.random() < 0.2
        keys = rng.choices(list(PROPERTIES), k=rng.choice((0, 1, 1, 1, 2, 3)))
        pairs = [(key, rng.choice(PROPERTIES[key])) for key in keys]
        if rng.random() < 0.7:
            changes = [(key, rng.choice((0, 0, 0, 1, 2, 3)), value) for key, value in pairs]
            ask(pair, f"change {changes} of {name!r}", change(*changes, name=name, dry=dry), rng.choice(range(2)))
        else:
            ask(pair, f"replace by {pairs} of {name!r}", replace(*pairs, name=name, dry=dry), rng.choice(range(3)))
        ask(pair, "what became of it", describe("admin-c", include_synonyms=True), 4, settles=True)
    pair.check()


def test_what_else_is_altered(pair: Pair) -> None:
    for version in range(2):
        for kind, name in ((BROKER, "77"), (BROKER, "x"), (99, "x"), (BROKER_LOGGER, "77")):
            ask(pair, f"change type {kind} {name}", change(("flush.ms", 0, "5"), name=name, kind=kind), version)
        ask(
            pair,
            "a read-only property",
            lambda side: change(("num.partitions", 0, "5"), name=str(node_id(side)), kind=BROKER),
            version,
        )
        ask(pair, "no change", lambda side: change(name=str(node_id(side)), kind=BROKER), version)
        levels: list[tuple[str, int, str | None]] = [
            ("nothing.known", 0, "INFO"), ("root", 0, "LOUD"), ("root", 1, None), ("root", 2, "INFO"),
        ]  # fmt: skip
        for one in levels:
            ask(pair, f"{one}", lambda side, one=one: change(one, name=str(node_id(side)), kind=BROKER_LOGGER), version)
        twice = incremental_messages.AlterConfigsResource(TOPIC, "admin-c", [])
        ask(pair, "twice", incremental_messages.IncrementalAlterConfigsRequest([twice, twice]), version)
    for version in range(3):
        for kind, name in ((BROKER, "77"), (BROKER, "x"), (99, "x"), (BROKER_LOGGER, "1")):
            ask(pair, f"replace type {kind} {name}", replace(name=name, kind=kind), version)
    pair.check()


# --- folders, the cluster


@pytest.mark.parametrize("version", range(5))
def test_folders(pair: Pair, version: int) -> None:
    pair.create(f"sized-{version}", partitions=2)
    fill(pair, f"sized-{version}", random.Random(version))
    some = [DescribableLogDirTopic(f"sized-{version}", [1, 0, 9]), DescribableLogDirTopic("nowhere", [0])]
    ask(pair, "some", DescribeLogDirsRequest(some), version)
    ask(pair, "none", DescribeLogDirsRequest([]), version)
    pair.check()


@pytest.mark.parametrize("version", range(2))
def test_the_cluster(pair: Pair, version: int) -> None:
    for operations in (False, True):
        for kind in (1, 2, 3) if version else (1,):
            ask(pair, f"type {kind}", DescribeClusterRequest(operations, kind), version)
    pair.check()
