"""The properties of a broker in a cluster: read, checked, refused. What Kafka says to the same is in tests/interop."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.cluster_properties import ACCEPTED, BROKER, REFUSED, REFUSED_HERE
from tests.broker.conftest import RunningBroker
from tidelog.broker.configs.config_entries import CONFIG_TYPES, STATIC_BROKER_CONFIG, ConfigEntries, ConfigEntry, meanings
from tidelog.broker.settings import cluster_config
from tidelog.broker.settings.broker_config import BROKER_PROPERTIES, BrokerConfig
from tidelog.broker.settings.cluster_config import (
    CLUSTER_NUMBERS,
    CLUSTER_PROPERTIES,
    ClusterConfig,
    ReplicaSelector,
    Voter,
)
from tidelog.broker.settings.server_properties import sort_properties
from tidelog.errors import InvalidArgumentError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "broker.md"


def cluster_of(**changes: str | None) -> ClusterConfig:
    given = {name.replace("_", "."): value for name, value in changes.items()}
    found = BrokerConfig.from_properties({name: value for name, value in {**BROKER, **given}.items() if value is not None})
    assert found.cluster is not None
    return found.cluster


def test_a_brokers_file() -> None:
    found = sort_properties({**BROKER, "broker.rack": "r1", "num.network.threads": "3"})
    assert found.config.cluster == ClusterConfig(
        node_id=4,
        voters=(Voter(1, "c1.example", 9093), Voter(2, "::1", 9093)),
        controller_listener_names=("CONTROLLER",),
        inter_broker_listener_name="PLAINTEXT",
    )
    assert (found.config.broker_rack, found.unused, found.unknown) == ("r1", ("num.network.threads",), ())
    assert found.manager == {"node.id": "4"}


def test_replicas_are_three_unless_the_file_says_otherwise() -> None:
    found = BrokerConfig.from_properties(BROKER)
    assert (found.offsets_topic_replication_factor, found.transaction_state_log_replication_factor) == (3, 3)
    assert found.transaction_state_log_min_isr == 2
    found = BrokerConfig.from_properties({**BROKER, "offsets.topic.replication.factor": "2"})
    assert found.offsets_topic_replication_factor == 2
    assert BrokerConfig.from_properties({}).offsets_topic_replication_factor == 1


def test_values_and_units() -> None:
    found = cluster_of(replica_lag_time_max_ms="15000", replica_fetch_wait_max_ms="15000", controlled_shutdown_enable=" False ")
    assert (found.replica_lag_time_max_ms, found.replica_fetch_wait_max_ms) == (15_000, 15_000)
    assert not found.controlled_shutdown_enable
    assert cluster_of(controller_quorum_voters="", controller_quorum_bootstrap_servers="a:1,[::1]:2").bootstrap_servers == (
        ("a", 1),
        ("::1", 2),
    )
    assert cluster_of(node_id=None, broker_id="5").node_id == 5
    assert cluster_of(replica_selector_class=ReplicaSelector.RACK_AWARE.value).replica_selector is ReplicaSelector.RACK_AWARE
    named = cluster_of(
        listeners="INSIDE://h:1,OUTSIDE://h:2",
        listener_security_protocol_map="inside:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="inside",
    )
    assert named.inter_broker_listener_name == "INSIDE"


@pytest.mark.parametrize("roles", ["", " , ", "broker,controller", "controller, broker"])
def test_a_broker_alone(roles: str) -> None:
    """A combined node's file, and one of ZooKeeper's days."""
    found = sort_properties({**BROKER, "process.roles": roles, "controller.quorum.voters": "4@localhost:9093"})
    assert found.config.cluster is None
    assert found.unused == ("controller.quorum.voters", "process.roles")


@pytest.mark.parametrize("changes", [pytest.param(changes, id=str(changes)) for changes in ACCEPTED])
def test_what_is_accepted(changes: dict[str, str]) -> None:
    assert sort_properties({**BROKER, **changes}).config.cluster is not None


@pytest.mark.parametrize(("changes", "what"), [pytest.param(*one, id=str(one[0])) for one in REFUSED + REFUSED_HERE])
def test_what_is_refused(changes: dict[str, str], what: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(what)):
        sort_properties({**BROKER, **changes})


@given(st.dictionaries(st.sampled_from(sorted(CLUSTER_PROPERTIES | BROKER.keys())), st.text(max_size=12), max_size=4))
def test_any_text_is_read_or_refused(changes: dict[str, str]) -> None:
    try:
        sort_properties({**BROKER, **changes})
    except InvalidArgumentError as error:
        assert "\n" not in str(error)


def test_tables_are_those_of_the_code() -> None:
    table = dict(re.findall(r"(?m)^([a-z][a-z.]*)(?:, \S+)? {2,}(\S+) {2,}\S", cluster_config.__doc__ or ""))
    assert {name: table[name] for name in CLUSTER_NUMBERS} == {
        name: str(known.default).lower() for name, known in CLUSTER_NUMBERS.items()
    }
    assert table.keys() >= CLUSTER_PROPERTIES
    assert not CLUSTER_PROPERTIES & BROKER_PROPERTIES.keys()
    assert set(re.findall(r"`([a-z.]+)`", PAGE.read_text(encoding="utf-8"))) >= CLUSTER_PROPERTIES


def test_clients_see_them_of_a_broker_in_a_cluster(broker: RunningBroker) -> None:
    def shown(properties: dict[str, str]) -> dict[str, ConfigEntry]:
        node = broker.running.node
        node.config = BrokerConfig.from_properties(properties)
        return {one.name: one for one in ConfigEntries(node).broker()}

    given = {"replica.lag.time.max.ms": "1000"}
    alone, joined = (broker.on_loop(partial(shown, properties)) for properties in (given, BROKER | given))
    assert not alone.keys() & CLUSTER_PROPERTIES
    assert joined.keys() - alone.keys() == CLUSTER_NUMBERS.keys() | {
        "process.roles",
        "controller.quorum.voters",
        "controller.listener.names",
    }
    late = joined["replica.lag.time.max.ms"]
    assert (late.value, late.source, late.config_type) == ("1000", STATIC_BROKER_CONFIG, CONFIG_TYPES["LONG"])
    replicas = "offsets.topic.replication.factor"
    assert (alone[replicas].value, joined[replicas].value) == ("1", "3")
    assert "fences" in meanings()["broker.session.timeout.ms"]
