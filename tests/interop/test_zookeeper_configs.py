"""Settings of brokers, properties of topics and throttled reassignments in a cluster of ZooKeeper, by Kafka's tools.

Each broker is asked for the same, Kafka's (which is the controller) and ours: what lies in ZooKeeper is judged, and what each
broker of the cluster says of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from tests.broker.raw import RawClient
from tests.interop.gate import first_of
from tests.interop.test_zookeeper_member import KAFKAS, OURS, Mixed, mixed
from tests.kafka.java import wait_until
from tests.kafka.java_tools import JavaTools, Said
from tests.kafka.zookeepers import ROOT
from tests.patience import PATIENCE_S
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from tidelog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from tidelog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LEADERS, FOLLOWERS = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
BROKER = ConfigResource.Type.BROKER
TOPIC = ConfigResource.Type.TOPIC


class Asked:
    """The cluster, asked through one of its brokers."""

    def __init__(self, both: Mixed, tools: JavaTools, node_id: int, folder: Path) -> None:
        self.both = both
        self.node_id = node_id
        self.topic = f"asked-of-{node_id}"
        self.bootstrap = both.kafka.bootstrap if node_id == KAFKAS else both.member.bootstrap
        self._tools = tools
        self._folder = folder

    def tool(self, main: str, *arguments: str) -> Said:
        return self._tools.run(main, "--bootstrap-server", self.bootstrap, *arguments)

    def alter(self, *entity: str, add: str = "", delete: str = "", is_refused: bool = False) -> None:
        """kafka-configs --alter."""
        changes = [*(("--add-config", add) if add else ()), *(("--delete-config", delete) if delete else ())]
        said = self.tool(CONFIGS, *entity, "--alter", *changes)
        assert (said.status != 0) == is_refused, said.text

    def znode(self, path: str) -> dict[str, str]:
        with self.both.cluster.client() as client:
            found = client.exists(f"{ROOT}{path}") and client.get(f"{ROOT}{path}")[0]
        return json.loads(found)["config"] if found else {}

    def change(self, kind: ConfigResource.Type, name: str, config: dict[str, str], *, validate_only: bool = False) -> ErrorCode:
        """Set all of a resource's properties with the older request, AlterConfigs."""
        resource = AlterConfigsResource(kind.value, name, [AlterableConfig(*one) for one in config.items()])
        with RawClient(("127.0.0.1", int(self.bootstrap.split(":")[1])), timeout_s=PATIENCE_S) as client:
            (answer,) = client.ask(AlterConfigsRequest([resource], validate_only), 1).responses
        return ErrorCode(answer.error_code)


def described(bootstrap: str, kind: ConfigResource.Type, name: str) -> dict[str, str | None]:
    """What a broker says of a resource: properties that are set for it, or for all brokers."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    resource = ConfigResource(kind, name)
    found = admin.describe_configs([resource], request_timeout=PATIENCE_S)[resource].result(PATIENCE_S)
    return {one.name: one.value for one in found.values() if one.source in (1, 2, 3)}


@contextmanager
def asked_both(folder: Path, release: str, protocol: str) -> Iterator[list[Asked]]:
    with mixed(folder, release, protocol) as both, JavaTools("3.9.1") as tools:
        yield [Asked(both, tools, node_id, folder) for node_id in (KAFKAS, OURS)]


@pytest.mark.parametrize(
    ("release", "protocol"),
    first_of(("3.9.1", "3.9"), ("2.4.1", "2.4"), why="the same requests at an older release's brokers"),
)
def test_what_brokers_write_themselves(tmp_path: Path, release: str, protocol: str) -> None:
    with asked_both(tmp_path, release, protocol) as each:
        for asked in each:
            settings_of_a_broker(asked)
            settings_of_all_brokers(asked)
            properties_of_a_topic(asked)
            a_throttled_reassignment(asked, tmp_path)
        if release == "3.9.1":
            quotas_and_users(each)
        ours = each[1]
        assert "Unexpected broker id" not in ours.both.member.said()
        without_a_controller(ours)


def settings_of_a_broker(asked: Asked) -> None:
    name, path = str(asked.node_id), f"/config/brokers/{asked.node_id}"
    broker = ("--entity-type", "brokers", "--entity-name", name)
    asked.alter(*broker, add=f"num.io.threads=9,{LEADERS}=1000000")
    assert asked.znode(path) == {"num.io.threads": "9", LEADERS: "1000000"}

    def is_shown() -> bool:
        found = described(asked.bootstrap, BROKER, name)
        # Kafka shows no value of a throttle.
        return found.keys() == {"num.io.threads", LEADERS} and found["num.io.threads"] == "9"

    wait_until(is_shown, f"broker {name}'s settings", PATIENCE_S)
    asked.alter(*broker, delete=LEADERS)
    assert asked.znode(path) == {"num.io.threads": "9"}
    asked.alter(*broker, add="log.dirs=/elsewhere", is_refused=True)
    asked.alter(*broker, add="num.io.threads=many", is_refused=True)
    assert asked.tool(CONFIGS, *broker, "--describe").status == 0
    # The older request: for validation only, with a setting that cannot change, of another broker, and for good.
    assert asked.change(BROKER, name, {LEADERS: "5"}, validate_only=True) is ErrorCode.NONE
    for config in ({"num.io.threads": "many"}, {"log.dirs": "/elsewhere"}):
        assert asked.change(BROKER, name, config) is ErrorCode.INVALID_REQUEST
    assert asked.change(BROKER, str(KAFKAS + OURS - asked.node_id), {LEADERS: "5"}) is ErrorCode.INVALID_REQUEST
    assert asked.znode(path) == {"num.io.threads": "9"}
    assert asked.change(BROKER, name, {LEADERS: "5"}) is ErrorCode.NONE
    assert asked.znode(path) == {LEADERS: "5"}
    asked.alter(*broker, delete=LEADERS)
    assert asked.znode(path) == {}


def settings_of_all_brokers(asked: Asked) -> None:
    """Every broker hears of them."""
    value = str(2_000_000 + asked.node_id)
    everyone = ("--entity-type", "brokers", "--entity-default")
    asked.alter(*everyone, add=f"message.max.bytes={value}")
    assert asked.znode("/config/brokers/<default>") == {"message.max.bytes": value}
    assert asked.tool(CONFIGS, *everyone, "--describe").status == 0
    for node_id, bootstrap in ((KAFKAS, asked.both.kafka.bootstrap), (OURS, asked.both.member.bootstrap)):
        wait_until(
            lambda bootstrap=bootstrap, node_id=node_id: (  # type: ignore[misc]
                described(bootstrap, BROKER, str(node_id)).get("message.max.bytes") == value
            ),
            f"broker {node_id} to hear of it",
            PATIENCE_S,
        )
    asked.alter(*everyone, delete="message.max.bytes")
    assert asked.znode("/config/brokers/<default>") == {}


def properties_of_a_topic(asked: Asked) -> None:
    asked.both.create(asked.topic, [[KAFKAS, OURS]])
    asked.both.wait_for(asked.topic, [KAFKAS, OURS], KAFKAS)
    topic = ("--entity-type", "topics", "--entity-name", asked.topic)
    asked.alter(*topic, add="retention.ms=777777,cleanup.policy=[compact,delete]")
    wanted = {"retention.ms": "777777", "cleanup.policy": "compact,delete"}
    assert asked.znode(f"/config/topics/{asked.topic}") == wanted
    for bootstrap in (asked.both.kafka.bootstrap, asked.both.member.bootstrap):
        wait_until(lambda bootstrap=bootstrap: described(bootstrap, TOPIC, asked.topic) == wanted, "its properties", PATIENCE_S)  # type: ignore[misc]
    asked.alter(*topic, add="retention.ms=soon", is_refused=True)
    asked.alter("--entity-type", "topics", "--entity-name", "missing", add="retention.ms=5", is_refused=True)
    # The code is that of 3.9.1; before 2.6 it was another one.
    assert asked.change(TOPIC, asked.topic, {"retention.ms": "soon"}) in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
    assert asked.change(TOPIC, "missing", {}) is not ErrorCode.NONE
    assert asked.change(TOPIC, asked.topic, {}) is ErrorCode.NONE
    assert asked.znode(f"/config/topics/{asked.topic}") == {}


def a_throttled_reassignment(asked: Asked, folder: Path) -> None:
    """The throttle is set on both brokers, by each of them, and taken away when all is copied."""
    asked.both.produce(asked.topic, "moved")
    plan = folder / f"{asked.topic}.json"
    moves = [{"topic": asked.topic, "partition": 0, "replicas": [OURS, KAFKAS]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    begun = asked.tool(REASSIGN, "--reassignment-json-file", str(plan), "--execute", "--throttle", "50000000")
    assert begun.status == 0, begun.text
    assert "The inter-broker throttle limit was set to 50000000 B/s" in begun.text
    for node_id in (KAFKAS, OURS):
        assert asked.znode(f"/config/brokers/{node_id}") == {LEADERS: "50000000", FOLLOWERS: "50000000"}

    def is_verified() -> bool:
        said = asked.tool(REASSIGN, "--reassignment-json-file", str(plan), "--verify")
        assert said.status == 0, said.text
        return f"Reassignment of partition {asked.topic}-0 is completed." in said.text

    wait_until(is_verified, "the reassignment", PATIENCE_S)
    for node_id in (KAFKAS, OURS):
        assert asked.znode(f"/config/brokers/{node_id}") == {}
    assert asked.znode(f"/config/topics/{asked.topic}") == {}


def quotas_and_users(each: list[Asked]) -> None:
    """Each broker stores them, and each says the same of them."""
    for asked in each:
        name = f"user of {asked.node_id}"
        asked.alter("--entity-type", "users", "--entity-name", name, add="producer_byte_rate=1024")
        asked.alter("--entity-type", "users", "--entity-name", name, add="SCRAM-SHA-256=[iterations=4096,password=secret]")
        asked.alter("--entity-type", "clients", "--entity-default", add=f"consumer_byte_rate={asked.node_id}")

    def told(asked: Asked) -> tuple[object, object]:
        with RawClient(("127.0.0.1", int(asked.bootstrap.split(":")[1])), timeout_s=PATIENCE_S) as client:
            quotas = client.ask(DescribeClientQuotasRequest([]), 1)
            users = client.ask(DescribeUserScramCredentialsRequest(None), 0)
        assert quotas.error_code == users.error_code == 0
        entries = sorted(repr((entry.entity, sorted(map(repr, entry.values)))) for entry in quotas.entries)
        return entries, sorted(map(repr, users.results))

    wait_until(lambda: told(each[0]) == told(each[1]), "the same of both", PATIENCE_S)
    entries, users = told(each[1])
    assert len(entries) == 3 and len(users) == 2, (entries, users)  # type: ignore[arg-type]


def without_a_controller(asked: Asked) -> None:
    """Nobody but ZooKeeper is needed for it."""
    asked.both.kafka.kill()
    asked.alter("--entity-type", "brokers", "--entity-name", str(OURS), add=f"{LEADERS}=77")
    assert asked.znode(f"/config/brokers/{OURS}") == {LEADERS: "77"}
