"""Settings that change while a broker runs, on Kafka 3.9.1 and Tidelog side by side: the answers, and what is then described."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.broker.raw import RawClient
from tests.kafka import Kafka391
from tests.kafka.java import wait_until
from tests.kafka.java_tools import run_tool
from tidelog import Broker
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
OURS = "tidelog."

Change = tuple[str, int, str | None]

STEPS: Sequence[tuple[str, Sequence[Change]]] = (
    ("", [("log.retention.ms", SET, "7200000"), ("log.segment.bytes", SET, "2000000")]),
    ("1", [("log.retention.ms", SET, " 3600000 ")]),
    ("1", [("message.max.bytes", SET, "500000"), ("log.cleaner.backoff.ms", SET, "1000"), ("num.io.threads", SET, "9")]),
    ("", [("max.connections", SET, "1000"), ("max.connections.per.ip", SET, "900"), ("compression.type", SET, "lz4")]),
    ("", [("log.cleanup.policy", SET, "compact,delete"), ("log.preallocate", SET, "true"), ("min.insync.replicas", SET, "1")]),
    ("", [("log.cleanup.policy", SUBTRACT, "compact")]),
    ("1", [("log.cleanup.policy", APPEND, "compact")]),
    ("1", [("log.retention.ms", SET, "x")]),
    ("1", [("log.retention.ms", DELETE, None), ("log.segment.bytes", SET, "3")]),
    ("1", [("log.cleaner.dedupe.buffer.size", SET, "5")]),
    ("1", [("log.cleaner.dedupe.buffer.size", SET, "4000000")]),
    ("1", [("num.partitions", SET, "5")]),
    ("1", [("log.retention.hours", SET, "5")]),
    ("1", [("log.dirs", SET, "/tmp")]),
    ("", [("listeners", SET, "PLAINTEXT://127.0.0.1:1")]),
    ("1", [("ssl.keystore.location", SET, "/tmp")]),
    ("1", [("num.io.threads", SET, "x")]),
    ("1", [("num.io.threads", SET, "0")]),
    ("1", [("log.retention.ms", APPEND, "5")]),
    ("1", [("of.a.plugin", SET, "5")]),
    ("", [("of.a.plugin", SET, "6")]),
    ("1", [("retention.ms", SET, "5")]),
    ("1", [("log.flush.interval.ms", SET, "5000"), ("log.roll.ms", SET, "60000")]),
    ("1", [("log.message.timestamp.type", SET, "LogAppendTime"), ("producer.id.expiration.ms", SET, "5000000")]),
    ("1", [("log.message.timestamp.type", SET, "sometimes")]),
    ("1", [("log.message.format.version", SET, "2.0")]),
    ("1", [("transaction.partition.verification.enable", SET, "false"), ("background.threads", SET, "7")]),
    ("1", [("log.retention.ms", SET, "60000"), ("log.retention.ms", SET, "60001")]),
    ("1", [("log.retention.ms", SET, None)]),
    ("7", [("log.retention.ms", SET, "5")]),
    ("x", [("log.retention.ms", SET, "5")]),
    ("1", [("retention.ms", DELETE, None), ("log.segment.bytes", DELETE, None), ("num.io.threads", DELETE, None)]),
    ("", [("log.retention.ms", DELETE, None), ("never.set", DELETE, None)]),
)


class Side:
    """A broker that is asked."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(":")
        self.client = RawClient((host, int(port)))

    def change(self, name: str, changes: Sequence[Change], *, dry: bool = False) -> int:
        configs = [AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
        resource = AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=configs)
        (answer,) = self.client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry), 1).responses
        self.reason = answer.error_message
        return int(answer.error_code)

    def described(self, kind: int, name: str) -> dict[str, Any]:
        """What is not only by default, by name."""
        asked = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=kind, resource_name=name)], include_synonyms=True
        )
        (answer,) = self.client.ask(asked, 4).results
        assert answer.error_code == 0, answer.error_message
        return {
            one.name: (
                one.value,
                one.config_source,
                one.read_only,
                one.is_sensitive,
                one.config_type,
                [(s.name, s.value, s.source) for s in one.synonyms],
            )
            for one in answer.configs
        }

    def dynamic(self) -> dict[str, Any]:
        """All that was set while the broker runs, as it is described of all brokers, of this one, and of a topic."""
        return {
            str((kind, name)): {
                key: told for key, told in self.described(kind, name).items() if told[1] in (2, 3) and not key.startswith(OURS)
            }
            for kind, name in ((BROKER, ""), (BROKER, "1"), (TOPIC, "set"))
        }


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka391]:
    with Kafka391(tmp_path_factory.mktemp("dynamic") / "kafka") as kafka:
        yield kafka


def test_side_by_side(kafka: Kafka391, tmp_path: Path) -> None:
    kafka.create_topic("set", 1, {"segment.bytes": "5000000"})
    with Broker(tmp_path / "tidelog", log_retention_ms="-1", log_cleaner_dedupe_buffer_size="2097152") as broker:
        broker.create_topic("set", 1, segment_bytes="5000000")
        theirs, ours = Side(kafka.bootstrap), Side(broker.bootstrap_servers)
        with theirs.client, ours.client:
            for name, changes in STEPS:
                codes = [side.change(name, changes, dry=dry) for dry in (True, False) for side in (theirs, ours)]
                assert codes == codes[:1] * 4, (name, changes, theirs.reason, ours.reason)
                # Kafka answers when its controller has it; its broker hears of it a moment later.
                wait_until(lambda: theirs.dynamic() == ours.dynamic(), f"the same settings after {name!r}: {changes}")


def test_kafka_configs(tmp_path: Path) -> None:
    """kafka-configs.sh: set, look, delete; for one broker, and for all."""
    with Broker(tmp_path, log_retention_ms="-1") as broker:

        def tool(*arguments: str, check: bool = True) -> str:
            at = ("--bootstrap-server", broker.bootstrap_servers)
            return run_tool("3.9.1", "kafka.admin.ConfigCommand", [*arguments, *at], check=check)

        one, all_brokers = ("--entity-type", "brokers", "--entity-name", "1"), ("--entity-type", "brokers", "--entity-default")
        tool("--alter", *all_brokers, "--add-config", "log.retention.ms=7200000,max.connections=500")
        said = tool("--alter", *one, "--add-config", "log.retention.ms=3600000")
        assert "Completed updating config for broker 1." in said
        told = tool("--describe", *one)
        assert re.search(
            r"log\.retention\.ms=3600000 sensitive=false synonyms=\{DYNAMIC_BROKER_CONFIG:log\.retention\.ms=3600000, "
            r"DYNAMIC_DEFAULT_BROKER_CONFIG:log\.retention\.ms=7200000, STATIC_BROKER_CONFIG:log\.retention\.ms=-1",
            told,
        ), told
        assert "max.connections=500 sensitive=false" in tool("--describe", *all_brokers)
        assert "InvalidRequestException" in tool("--alter", *one, "--add-config", "num.partitions=5", check=False)
        tool("--alter", *one, "--delete-config", "log.retention.ms")
        assert "log.retention.ms=3600000" not in tool("--describe", *one)
