"""Properties over the wire: described with their sources, changed one by one and all at once; folders and the cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.loop_turns import LoopTurns
from tests.broker.raw import RawClient
from tests.broker.test_topic_admin import fill, topics_of
from tests.storage.known_topics import forget
from tidelog.broker.apis import alter_configs, describe_cluster, describe_configs, describe_log_dirs, incremental_alter_configs
from tidelog.broker.configs.config_changes import BROKER, BROKER_LOGGER, CLIENT_METRICS, TOPIC, Operation
from tidelog.broker.configs.config_entries import meanings
from tidelog.broker.settings.dynamic_settings import DYNAMIC
from tidelog.broker.settings.sensitive_properties import SENSITIVE_PROPERTIES, UNDEFINED_PROPERTIES, is_read_only, is_secret
from tidelog.clock import SystemClock
from tidelog.config import LogConfig
from tidelog.model import MAX_TIMESTAMP
from tidelog.storage.log_manager import LogManager
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages import alter_configs as alter_messages
from tidelog.wire.messages import incremental_alter_configs as incremental_messages
from tidelog.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult
from tidelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT, LOGGER = 1, 4, 5, 6
SET, DELETE, APPEND, SUBTRACT = Operation


def describe(
    client: RawClient, name: str, resource_type: int = TOPIC, *, keys: list[str] | None = None, version: int = 4, **options: bool
) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)
    (result,) = client.ask(DescribeConfigsRequest(resources=[resource], **options), version).results
    assert (result.resource_type, result.resource_name, result.error_code) == (resource_type, name, ErrorCode.NONE)
    return {one.name: one for one in result.configs}


def synonyms(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(one.name, one.value, one.source) for one in entry.synonyms]


def change(
    client: RawClient,
    name: str,
    *changes: tuple[str, int, str | None],
    resource_type: int = TOPIC,
    version: int = 1,
    dry: bool = False,
) -> int:
    configs = [incremental_messages.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    resource = incremental_messages.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
    request = incremental_messages.IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)
    (response,) = client.ask(request, version).responses
    assert (response.resource_type, response.resource_name) == (resource_type, name)
    assert (response.error_message is None) == (response.error_code == ErrorCode.NONE)
    return int(response.error_code)


def replace(
    client: RawClient, name: str, resource_type: int = TOPIC, *, version: int = 2, dry: bool = False, **configs: str | None
) -> int:
    settings = [alter_messages.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = alter_messages.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=settings)
    (response,) = client.ask(alter_messages.AlterConfigsRequest(resources=[resource], validate_only=dry), version).responses
    assert (response.error_message is None) == (response.error_code == ErrorCode.NONE)
    return int(response.error_code)


# --- described


@pytest.mark.parametrize("version", range(describe_configs.API.served.first, describe_configs.API.served.last + 1))
def test_a_topic_is_described_in_every_version(start_broker: StartBroker, version: int) -> None:
    broker = start_broker(log_retention_ms="-1", log_retention_hours="24")
    broker.create_topic("a", retention_ms="1000", cleanup_policy="compact, delete", segment_bytes=" 9000 ")
    with broker.client() as client:
        told = describe(client, "a", version=version, include_synonyms=True, include_documentation=True)
    assert list(told) == sorted(LogConfig.kinds())
    retention = told["retention.ms"]
    assert (retention.value, retention.read_only, retention.is_sensitive) == ("1000", False, False)
    assert (told["cleanup.policy"].value, told["segment.bytes"].value) == ("compact,delete", "9000")
    if version == 0:
        assert [name for name, one in told.items() if not one.is_default] == ["cleanup.policy", "retention.ms", "segment.bytes"]
    else:
        assert retention.config_source == DYNAMIC_TOPIC
        assert synonyms(retention) == [
            ("retention.ms", "1000", DYNAMIC_TOPIC),
            ("log.retention.ms", "-1", STATIC_BROKER),
            ("log.retention.hours", "24", STATIC_BROKER),
            ("log.retention.hours", "168", DEFAULT),
        ]
    assert [one.config_type for one in (retention, told["segment.bytes"], told["cleanup.policy"], told["preallocate"])] == (
        [5, 3, 7, 1] if version >= 3 else [0] * 4
    )
    assert [name for name, one in told.items() if bool(one.documentation) != (version >= 3)] == []


def test_synonyms_and_meanings_are_told_who_asks_for_them(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a")
    entry = describe(client, "a", keys=["retention.bytes"])["retention.bytes"]
    assert (entry.synonyms, entry.documentation) == ([], None)


def test_sources_as_kafka_tells_them(start_broker: StartBroker) -> None:
    """Only the finest unit's name counts for the source; the value is that of whichever is set."""
    broker = start_broker(log_roll_hours="24", log_segment_bytes="4096")
    broker.create_topic("a")
    with broker.client() as client:
        told = describe(client, "a", include_synonyms=True)
    assert (told["segment.ms"].value, told["segment.ms"].config_source, told["segment.ms"].synonyms) == ("86400000", DEFAULT, [])
    assert (told["segment.bytes"].value, told["segment.bytes"].config_source) == ("4096", STATIC_BROKER)
    assert synonyms(told["segment.bytes"]) == [
        ("log.segment.bytes", "4096", STATIC_BROKER),
        ("log.segment.bytes", "1073741824", DEFAULT),
    ]
    assert (told["remote.storage.enable"].config_source, told["remote.storage.enable"].synonyms) == (DEFAULT, [])


@pytest.mark.parametrize("keys", [[], ["retention.ms", "nothing", "segment.ms"]])
def test_some_properties(broker: RunningBroker, client: RawClient, keys: list[str]) -> None:
    broker.create_topic("a")
    assert list(describe(client, "a", keys=keys)) == (["retention.ms", "segment.ms"] if keys else sorted(LogConfig.kinds()))


def test_the_broker_is_described(start_broker: StartBroker) -> None:
    broker = start_broker(num_partitions="3", log_retention_ms="5000", ssl_keystore_password="secret")
    with broker.client() as client:
        told = describe(client, "1", BROKER, include_synonyms=True, include_documentation=True)
        assert describe(client, "", BROKER) == {}
    assert (told["num.partitions"].value, told["num.partitions"].config_source) == ("3", STATIC_BROKER)
    assert synonyms(told["num.partitions"]) == [("num.partitions", "3", STATIC_BROKER), ("num.partitions", "1", DEFAULT)]
    assert synonyms(told["log.retention.ms"]) == [
        ("log.retention.ms", "5000", STATIC_BROKER),
        ("log.retention.hours", "168", DEFAULT),
    ]
    assert (told["log.retention.hours"].value, told["log.retention.hours"].config_source) == ("168", DEFAULT)
    assert told["log.dirs"].value == str(broker.data_dir)
    assert told["node.id"].value == "1"
    assert told["advertised.listeners"].value == f"PLAINTEXT://{broker.bootstrap_servers}"
    assert [name for name in ("port", "host.name") if name in told] == []
    assert told["auto.create.topics.enable"].value == "true"
    assert {name for name, one in told.items() if one.read_only} == {
        name for name in told if name not in DYNAMIC and (not is_secret(name) or is_read_only(name))
    }
    assert {name for name, one in told.items() if one.is_sensitive} == SENSITIVE_PROPERTIES
    assert {one.value for one in told.values() if one.is_sensitive} == {None}
    password = told["ssl.keystore.password"]
    assert (password.config_source, synonyms(password)) == (STATIC_BROKER, [("ssl.keystore.password", None, STATIC_BROKER)])
    assert "secret" not in {one.value for one in told.values()}
    assert [name for name in ("fetch.max.bytes", "log.segment.bytes", "log.cleaner.enable") if not told[name].documentation] == []
    assert not UNDEFINED_PROPERTIES & told.keys()


def test_properties_of_the_authorizer_are_described_as_secrets(start_broker: StartBroker) -> None:
    """Kafka's broker does not define them, so their type and whether they are secret is unknown."""
    broker = start_broker(super_users="User:ANONYMOUS", allow_everyone_if_no_acl_found="true")
    with broker.client() as client:
        told = describe(client, "1", BROKER, include_synonyms=True)
    for name in UNDEFINED_PROPERTIES:
        one = told[name]
        assert (one.value, one.config_source, one.config_type, one.is_sensitive) == (None, STATIC_BROKER, 0, True)
        assert (one.read_only, synonyms(one)) == (True, [(name, None, STATIC_BROKER)])


def test_what_is_not_described(broker: RunningBroker, client: RawClient) -> None:
    cases = {
        (TOPIC, "missing"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (TOPIC, "a b"): ErrorCode.INVALID_TOPIC_EXCEPTION,
        (TOPIC, ""): ErrorCode.INVALID_TOPIC_EXCEPTION,
        (BROKER, "7"): ErrorCode.INVALID_REQUEST,
        (BROKER, "x"): ErrorCode.INVALID_REQUEST,
        (BROKER_LOGGER, ""): ErrorCode.INVALID_REQUEST,
        (BROKER_LOGGER, "7"): ErrorCode.INVALID_REQUEST,
        (CLIENT_METRICS, ""): ErrorCode.INVALID_REQUEST,
        (CLIENT_METRICS, "s"): ErrorCode.NONE,
    }
    resources = [DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None) for kind, name in cases]
    response = client.ask(DescribeConfigsRequest(resources=resources), 4)
    assert {(one.resource_type, one.resource_name): one.error_code for one in response.results} == cases
    assert not any(one.configs for one in response.results)
    resources.append(DescribeConfigsResource(resource_type=99, resource_name="x", configuration_keys=None))
    response = client.ask(DescribeConfigsRequest(resources=resources), 4)
    assert {one.error_code for one in response.results} == {ErrorCode.INVALID_REQUEST}


def test_each_property_has_a_meaning() -> None:
    assert LogConfig.kinds().keys() - meanings().keys() == set()


# --- changed one by one


@pytest.mark.parametrize(
    "version", range(incremental_alter_configs.API.served.first, incremental_alter_configs.API.served.last + 1)
)
def test_properties_change_one_by_one(broker: RunningBroker, client: RawClient, version: int) -> None:
    broker.create_topic("a", retention_ms="1000")
    log = broker.node.manager.log("a", 0)
    assert change(client, "a", ("segment.bytes", SET, "9000"), ("flush.ms", SET, "5"), version=version) == ErrorCode.NONE
    assert topics_of(broker)["a"].properties == {"retention.ms": "1000", "segment.bytes": "9000", "flush.ms": "5"}
    assert (log.config.segment_bytes, log.config.retention_ms) == (9000, 1000)
    assert (
        change(client, "a", ("retention.ms", DELETE, None), ("flush.ms", DELETE, "x"), ("never.set", DELETE, None))
        == ErrorCode.NONE
    )
    assert topics_of(broker)["a"].properties == {"segment.bytes": "9000"}
    assert log.config.retention_ms == 604800000
    assert change(client, "a") == ErrorCode.NONE


def test_lists(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a")

    def policy() -> str:
        return describe(client, "a", keys=["cleanup.policy"])["cleanup.policy"].value or ""

    assert change(client, "a", ("cleanup.policy", APPEND, "compact")) == ErrorCode.NONE
    assert policy() == "delete,compact"
    assert change(client, "a", ("cleanup.policy", APPEND, "compact,delete")) == ErrorCode.NONE
    assert policy() == "delete,compact"
    assert change(client, "a", ("cleanup.policy", SUBTRACT, "delete,missing")) == ErrorCode.NONE
    assert policy() == "compact"
    assert broker.node.manager.log("a", 0).config.is_compacted
    assert change(client, "a", ("cleanup.policy", SUBTRACT, "compact")) == ErrorCode.NONE
    assert policy() == ""
    assert change(client, "a", ("cleanup.policy", APPEND, "shrink")) == ErrorCode.INVALID_CONFIG
    assert change(client, "a", ("leader.replication.throttled.replicas", APPEND, "0:1")) == ErrorCode.NONE
    assert topics_of(broker)["a"].properties == {"cleanup.policy": "", "leader.replication.throttled.replicas": "0:1"}


CHANGES: dict[str, tuple[str, int, list[tuple[str, int, str | None]], ErrorCode]] = {
    "no such topic": ("missing", TOPIC, [("retention.ms", SET, "5")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "no such topic, no change": ("missing", TOPIC, [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "no such topic, bad value": ("missing", TOPIC, [("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
    "no topic's name": ("a b", TOPIC, [("retention.ms", SET, "5")], ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no name": ("", TOPIC, [("retention.ms", SET, "5")], ErrorCode.INVALID_REQUEST),
    "no value": ("a", TOPIC, [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
    "a bad value": ("a", TOPIC, [("flush.ms", SET, "1"), ("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
    "an unknown property": ("a", TOPIC, [("foo", SET, "5")], ErrorCode.INVALID_CONFIG),
    "a property twice": ("a", TOPIC, [("flush.ms", SET, "1"), ("flush.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
    "an addition to a number": ("a", TOPIC, [("flush.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
    "an addition to nothing": ("a", TOPIC, [("foo", APPEND, "1")], ErrorCode.INVALID_CONFIG),
    "an unknown operation": ("a", TOPIC, [("flush.ms", 7, "1")], ErrorCode.INVALID_REQUEST),
    "tiered storage": ("a", TOPIC, [("remote.storage.enable", SET, "true")], ErrorCode.INVALID_CONFIG),
    "the broker": ("1", BROKER, [("num.partitions", SET, "5")], ErrorCode.INVALID_REQUEST),
    "all brokers": ("", BROKER, [("log.dirs", SET, "5")], ErrorCode.INVALID_REQUEST),
    "another broker": ("7", BROKER, [], ErrorCode.INVALID_REQUEST),
    "no broker": ("x", BROKER, [], ErrorCode.INVALID_REQUEST),
    "a subscription": ("s", CLIENT_METRICS, [("interval.ms", SET, "5")], ErrorCode.INVALID_REQUEST),
    "nothing known": ("x", 99, [], ErrorCode.INVALID_REQUEST),
    "no logger": ("1", BROKER_LOGGER, [("tidelog.nothing", SET, "INFO")], ErrorCode.INVALID_CONFIG),
    "somebody else's logger": ("1", BROKER_LOGGER, [("asyncio", SET, "INFO")], ErrorCode.INVALID_CONFIG),
    "no level": ("1", BROKER_LOGGER, [("tidelog.broker", SET, "LOUD")], ErrorCode.INVALID_CONFIG),
    "the root logger's level": ("1", BROKER_LOGGER, [("root", DELETE, None)], ErrorCode.INVALID_REQUEST),
    "a longer level": ("1", BROKER_LOGGER, [("root", APPEND, "INFO")], ErrorCode.INVALID_REQUEST),
    "another broker's logger": ("7", BROKER_LOGGER, [("root", SET, "INFO")], ErrorCode.INVALID_REQUEST),
}


def test_changes_that_are_refused_change_nothing(broker: RunningBroker, client: RawClient) -> None:
    """Each as Kafka 3.9.1 answers it."""
    broker.create_topic("a", retention_ms="1000")
    found = {what: change(client, name, *changes, resource_type=kind) for what, (name, kind, changes, _) in CHANGES.items()}
    assert found == {what: code for what, (_, _, _, code) in CHANGES.items()}
    assert topics_of(broker)["a"].properties == {"retention.ms": "1000"}


def test_to_validate_is_not_to_change(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a", retention_ms="1000")
    assert change(client, "a", ("flush.ms", SET, "5"), dry=True) == ErrorCode.NONE
    assert change(client, "a", ("flush.ms", SET, "x"), dry=True) == ErrorCode.INVALID_CONFIG
    assert replace(client, "a", flush_ms="5", dry=True) == ErrorCode.NONE
    assert topics_of(broker)["a"].properties == {"retention.ms": "1000"}


def test_what_nobody_has_set_is_taken_away_from_a_broker(client: RawClient) -> None:
    assert change(client, "1", ("log.retention.ms", DELETE, None), resource_type=BROKER) == ErrorCode.NONE


def test_a_resource_that_is_named_twice_is_left_alone(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a")
    broker.create_topic("b")
    config = incremental_messages.AlterableConfig(name="flush.ms", config_operation=SET, value="5")
    resources = [
        incremental_messages.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[config]) for name in "aba"
    ]
    response = client.ask(incremental_messages.IncrementalAlterConfigsRequest(resources=resources), 1)
    refused = ErrorCode.INVALID_REQUEST
    assert [(one.resource_name, one.error_code) for one in response.responses] == [("a", refused), ("b", 0), ("a", refused)]
    assert {name: topic.properties for name, topic in topics_of(broker).items()} == {"a": {}, "b": {"flush.ms": "5"}}


# --- changed all at once


@pytest.mark.parametrize("version", range(alter_configs.API.served.first, alter_configs.API.served.last + 1))
def test_all_properties_of_a_topic_change(broker: RunningBroker, client: RawClient, version: int) -> None:
    broker.create_topic("a", retention_ms="1000", segment_bytes="9000")
    assert replace(client, "a", version=version, retention_ms="7", flush_ms=" 8 ") == ErrorCode.NONE
    assert topics_of(broker)["a"].properties == {"retention.ms": "7", "flush.ms": " 8 "}
    assert replace(client, "a", version=version) == ErrorCode.NONE
    assert topics_of(broker)["a"].properties == {}


def test_what_does_not_change_all_at_once(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a", retention_ms="1000")
    assert replace(client, "missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replace(client, "a", retention_ms=None) == ErrorCode.INVALID_REQUEST
    assert replace(client, "a", flush_ms="5", foo="1") == ErrorCode.INVALID_CONFIG
    assert replace(client, "1", BROKER, num_partitions="5") == ErrorCode.INVALID_REQUEST
    assert replace(client, "1", BROKER_LOGGER) == ErrorCode.INVALID_REQUEST
    assert topics_of(broker)["a"].properties == {"retention.ms": "1000"}


def test_a_timestamp_type_changes_under_a_live_topic(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a")
    fill(broker, "a", 1)
    assert change(client, "a", ("message.timestamp.type", SET, "LogAppendTime")) == ErrorCode.NONE
    fill(broker, "a", 1)
    latest = broker.on_loop(lambda: broker.node.manager.log("a", 0).fetch_offset_by_timestamp(MAX_TIMESTAMP))
    assert latest is not None
    assert (latest.offset, latest.timestamp > 1_000_000) == (1, True)


# --- topics that were found without a configuration


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """A folder whose topic nothing is known of."""
    folder = tmp_path / "found"
    with LogManager(folder, SystemClock()) as manager:
        manager.create_topic("old", 2, {"retention.ms": "1000"})
    forget(folder)
    return folder


def test_a_found_topic_keeps_everything_until_it_is_told_otherwise(start_broker: StartBroker, found: Path) -> None:
    broker = start_broker(data_dir=found)
    with broker.client() as client:
        told = describe(client, "old")
        assert {name for name, one in told.items() if one.config_source == DYNAMIC_TOPIC} == {
            "cleanup.policy",
            "retention.ms",
            "retention.bytes",
        }
        assert told["retention.ms"].value == "-1"
        assert change(client, "old") == ErrorCode.NONE
        assert topics_of(broker) == {}
        assert change(client, "old", ("segment.bytes", SET, "9000")) == ErrorCode.NONE
    topic = topics_of(broker)["old"]
    assert topic.properties == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "segment.bytes": "9000",
    }
    assert topic.partitions == 2


# --- lists that grow


THROTTLED = "leader.replication.throttled.replicas"


def parts(first: int) -> str:
    return ",".join(f"{number}:{number}" for number in range(first, first + 2500))


def test_a_value_that_appending_makes_too_long_is_refused_alone(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(tmp_path / "data")
    for name in "tu":
        broker.create_topic(name)
    long = parts(10_000)
    with broker.client() as client:
        assert change(client, "t", (THROTTLED, APPEND, long), ("retention.ms", SET, "1")) == ErrorCode.NONE
        changes = [("t", THROTTLED, APPEND, parts(20_000)), ("t", "retention.ms", SET, "2"), ("u", "retention.ms", SET, "3")]
        request = incremental_messages.IncrementalAlterConfigsRequest(
            resources=[
                incremental_messages.AlterConfigsResource(
                    TOPIC, name, [incremental_messages.AlterableConfig(*one[1:]) for one in changes if one[0] == name]
                )
                for name in "tu"
            ]
        )
        of_t, of_u = client.ask(request, 1).responses
        assert (of_t.error_code, of_u.error_code) == (ErrorCode.INVALID_CONFIG, ErrorCode.NONE)
        assert of_t.error_message == f"{THROTTLED}: the value cannot be set, because it exceeds the maximum size of 32767 bytes"
        reporters = ",".join(f"{number:05}" for number in range(4000))
        assert change(client, "1", ("metric.reporters", APPEND, reporters), resource_type=BROKER) == ErrorCode.NONE
        more = reporters.replace("0", "a")
        refused = change(client, "1", ("metric.reporters", APPEND, more), resource_type=BROKER)
        assert refused == ErrorCode.INVALID_CONFIG
    for _ in range(2):  # Now, and after another start.
        with broker.client() as client:
            told = [{key: one.value for key, one in describe(client, name).items()} for name in "tu"]
            assert [(one[THROTTLED], one["retention.ms"]) for one in told] == [(long, "1"), ("", "3")]
            assert describe(client, "1", BROKER)["metric.reporters"].value == reporters
        broker.stop()
        broker = start_broker(tmp_path / "data")


def test_lists_are_changed_part_by_part(client: RawClient, broker: RunningBroker) -> None:
    broker.create_topic("a")
    for operation, value, expected in (
        (SET, "1:1,2:1,1:1,3:1,1:1", "1:1,2:1,1:1,3:1,1:1"),
        (APPEND, "3:1,4:1,4:1,5:1", "1:1,2:1,1:1,3:1,1:1,4:1,5:1"),
        (SUBTRACT, "1:1,9:9,4:1,1:1", "2:1,3:1,1:1,5:1"),
        (SUBTRACT, "1:1,2:1,3:1,5:1", ""),
    ):
        assert change(client, "a", (THROTTLED, operation, value)) == ErrorCode.NONE
        assert describe(client, "a")[THROTTLED].value == expected


def test_long_lists_are_changed_in_time_that_grows_as_they_do(client: RawClient, broker: RunningBroker) -> None:
    # Of 4,096 parts each: comparing each with each took 0.3 s.
    some, others = (",".join(f"{a}{b}{c}{d}" for a in x for b in x for c in x for d in x) for x in ("abcdefgh", "ijklmnop"))
    took = {}
    with LoopTurns(broker) as turns:
        for operation, value in ((SET, some), (SUBTRACT, others), (APPEND, some), (SUBTRACT, some)):
            turns.clear()
            assert change(client, "1", ("metric.reporters", operation, value), resource_type=BROKER) == ErrorCode.NONE
            took[operation.name, value[:1]] = turns.longest
    assert max(one.seconds for one in took.values()) < 0.1, took


# --- loggers


@pytest.fixture
def levels() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in ("tidelog", "tidelog.broker")}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_loggers_are_heard_and_hushed(levels: None, client: RawClient) -> None:
    assert (
        change(client, "1", ("tidelog.broker", SET, "DEBUG"), ("root", SET, "FATAL"), resource_type=BROKER_LOGGER)
        == ErrorCode.NONE
    )
    told = describe(client, "1", BROKER_LOGGER)
    assert (told["root"].value, told["tidelog.broker"].value, told["tidelog.storage"].value) == ("FATAL", "DEBUG", "FATAL")
    assert {one.config_source for one in told.values()} == {LOGGER}
    assert logging.getLogger("tidelog.broker").isEnabledFor(logging.DEBUG)
    assert change(client, "1", ("tidelog.broker", DELETE, None), resource_type=BROKER_LOGGER) == ErrorCode.NONE
    assert describe(client, "1", BROKER_LOGGER)["tidelog.broker"].value == "FATAL"
    assert not any(name for name in told if name != "root" and not name.startswith("tidelog."))


# --- folders, the cluster


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {(topic.name, one.partition_index): one.partition_size for topic in result.topics for one in topic.partitions}


@pytest.mark.parametrize("version", range(describe_log_dirs.API.served.first, describe_log_dirs.API.served.last + 1))
def test_folders(broker: RunningBroker, client: RawClient, version: int) -> None:
    broker.create_topic("a", 2)
    broker.create_topic("b")
    fill(broker, "a", 10)
    stored = (broker.data_dir / "a-0" / "00000000000000000000.log").stat().st_size
    (everything,) = client.ask(DescribeLogDirsRequest(topics=None), version).results
    assert (everything.error_code, everything.log_dir) == (ErrorCode.NONE, str(broker.data_dir))
    assert sizes(everything) == {("a", 0): stored, ("a", 1): 0, ("b", 0): 0}
    assert (everything.total_bytes > everything.usable_bytes > 0) == (version >= 4)
    some = [DescribableLogDirTopic(topic="a", partitions=[0, 9, 0]), DescribableLogDirTopic(topic="missing", partitions=[0])]
    assert sizes(client.ask(DescribeLogDirsRequest(topics=some), version).results[0]) == {("a", 0): stored}
    assert sizes(client.ask(DescribeLogDirsRequest(topics=[]), version).results[0]) == {}


@pytest.mark.parametrize("version", range(describe_cluster.API.served.first, describe_cluster.API.served.last + 1))
def test_the_cluster(broker: RunningBroker, client: RawClient, version: int) -> None:
    host, port = broker.address
    expected = DescribeClusterResponse(
        cluster_id=broker.node.cluster_id or "",
        controller_id=1,
        brokers=[DescribeClusterBroker(broker_id=1, host=host, port=port)],
    )
    assert client.ask(DescribeClusterRequest(), version) == expected
    expected.cluster_authorized_operations = 8096
    assert client.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version) == expected


def test_a_controller_is_not_asked_here(client: RawClient) -> None:
    codes = [client.ask(DescribeClusterRequest(endpoint_type=kind), 1).error_code for kind in (2, 3)]
    assert codes == [ErrorCode.MISMATCHED_ENDPOINT_TYPE, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE]
