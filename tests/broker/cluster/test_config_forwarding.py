"""Properties in a cluster: what a member looks at itself, what it sends on, and what comes back in the metadata."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.broker.cluster.fake_plane import Member, member, registered, topic
from tidelog.errors import BrokerUnreachableError, UnsupportedVersionError
from tidelog.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigRecord
from tidelog.wire.codec import decoder
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.headers import read_request_header, response_chunks
from tidelog.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.incremental_alter_configs import AlterableConfig as Incremental
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from tidelog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

__all__ = ["member"]

TOPIC, BROKER, LOGGER, CLIENTS, GROUP = 2, 4, 8, 16, 32


class Controller:
    """Takes all that it gets, but for what is named `bad`, and notes it."""

    def __init__(self) -> None:
        self.resources: list[tuple[int, str]] = []
        self.validate_only: list[bool] = []

    def __call__(self, frame: bytes) -> bytes:
        header, position = read_request_header(frame)
        cls, answer = {
            33: (AlterConfigsRequest, AlterConfigsResponse),
            44: (IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
        }[header.api_key]
        message: Any = decoder(cls, header.api_version)(frame, position)
        self.resources += [(one.resource_type, one.resource_name) for one in message.resources]
        self.validate_only.append(message.validate_only)
        response = answer(
            responses=[
                AlterConfigsResourceResponse(
                    40 if one.resource_name == "bad" else 0,
                    "no good" if one.resource_name == "bad" else None,
                    one.resource_type,
                    one.resource_name,
                )
                for one in reversed(message.resources)
            ]
        )
        return b"".join(response_chunks(response, header.api_version, header.correlation_id))[4:]


def change(resource_type: int, name: str, *configs: tuple[str, str | None], operation: int = 0) -> IncrementalResource:
    return IncrementalResource(resource_type, name, [Incremental(key, operation, value) for key, value in configs])


def changed(broker: Member, *resources: IncrementalResource, validate_only: bool = False) -> list[str]:
    with broker.client() as client:
        answer = client.ask(IncrementalAlterConfigsRequest(list(resources), validate_only), 1)
    assert [(one.resource_type, one.resource_name) for one in answer.responses] == [
        (one.resource_type, one.resource_name) for one in resources
    ]
    return [ErrorCode(one.error_code).name for one in answer.responses]


def test_what_the_controllers_keep_is_sent_on(member: Member) -> None:
    member.plane.answer = controller = Controller()
    resources = [
        change(TOPIC, "t", ("retention.ms", "5")),
        change(TOPIC, "bad", ("retention.ms", "5")),
        change(BROKER, "", ("log.cleaner.threads", "2")),
        change(BROKER, "1", ("leader.replication.throttled.rate", "1000")),
        change(CLIENTS, "c", ("interval.ms", "5")),
        change(GROUP, "g", ("consumer.session.timeout.ms", "50000")),
    ]
    assert changed(member, *resources) == ["NONE", "INVALID_CONFIG", "NONE", "NONE", "NONE", "NONE"]
    assert controller.resources == [(one.resource_type, one.resource_name) for one in resources]
    assert changed(member, resources[0], validate_only=True) == ["NONE"]
    assert controller.validate_only == [False, True]


def test_what_a_broker_may_not_have_is_refused_here(member: Member) -> None:
    member.plane.answer = controller = Controller()
    resources = [
        change(BROKER, "1", ("log.dirs", "/elsewhere")),
        change(BROKER, "", ("log.cleaner.threads", "many")),
        change(BROKER, "2", ("log.cleaner.threads", "2")),
        change(BROKER, "one", ("log.cleaner.threads", "2")),
        change(TOPIC, "t", ("retention.ms", None)),
        change(TOPIC, "u", ("retention.ms", "1"), ("retention.ms", "2")),
        change(3, "x", ("a", "b")),
        change(TOPIC, "left", ("a", "b")),
    ]
    assert changed(member, *resources) == ["INVALID_REQUEST"] * 7 + ["NONE"]
    assert controller.resources == [(TOPIC, "left")]
    assert changed(member, resources[7], resources[7]) == ["INVALID_REQUEST"] * 2
    assert changed(member, resources[0]) == ["INVALID_REQUEST"]
    assert len(controller.resources) == 1


def test_loggers_are_the_brokers_own(member: Member) -> None:
    member.plane.answer = controller = Controller()
    logger = logging.getLogger("tidelog.broker")
    before = logger.level
    try:
        assert changed(member, change(LOGGER, "1", ("tidelog.broker", "ERROR")), validate_only=True) == ["NONE"]
        assert logger.level == before
        assert changed(member, change(LOGGER, "1", ("tidelog.broker", "ERROR"))) == ["NONE"]
        assert logger.level == logging.ERROR
        assert controller.resources == []
    finally:
        logger.setLevel(before)


@pytest.mark.parametrize("version", range(3))
def test_the_older_request(member: Member, version: int) -> None:
    member.plane.answer = controller = Controller()
    request = AlterConfigsRequest(
        [
            AlterConfigsResource(TOPIC, "t", [AlterableConfig("retention.ms", "5")]),
            AlterConfigsResource(LOGGER, "1", [AlterableConfig("root", "INFO")]),
            AlterConfigsResource(BROKER, "1", [AlterableConfig("node.id", "5")]),
        ]
    )
    with member.client() as client:
        answer = client.ask(request, version)
    assert [ErrorCode(one.error_code).name for one in answer.responses] == ["NONE", "INVALID_REQUEST", "INVALID_REQUEST"]
    assert controller.resources == [(TOPIC, "t")]


def test_a_controller_that_does_not_answer(member: Member) -> None:
    member.plane.answer = lambda frame: BrokerUnreachableError("nobody leads")
    resources = [change(TOPIC, "t", ("a", "b")), change(BROKER, "2", ("a", "b"))]
    assert changed(member, *resources) == ["REQUEST_TIMED_OUT", "INVALID_REQUEST"]
    member.plane.answer = lambda frame: UnsupportedVersionError("v1")
    with member.client() as client:
        client.send(IncrementalAlterConfigsRequest(resources[:1]), 1)
        assert client.closed()


# --- what comes back


def described(broker: Member, resource_type: int, name: str) -> dict[str, Any]:
    request = DescribeConfigsRequest([DescribeConfigsResource(resource_type, name, None)], include_synonyms=True)
    with broker.client() as client:
        (answer,) = client.ask(request, 4).results
    assert answer.error_code == 0, answer.error_message
    return {one.name: one for one in answer.configs}


def test_properties_of_topics_are_those_of_the_metadata(member: Member) -> None:
    member.replay(
        registered(1),
        *topic("far", ([2, 3], [2], 2)),
        ConfigRecord(TOPIC_RESOURCE, "far", "retention.ms", "77"),
        ConfigRecord(TOPIC_RESOURCE, "far", "of.a.newer.kafka", "x"),
        ConfigRecord(BROKER_RESOURCE, "", "log.retention.bytes", "88"),
        ConfigRecord(BROKER_RESOURCE, "1", "log.retention.bytes", "99"),
        ConfigRecord(BROKER_RESOURCE, "2", "log.retention.bytes", "66"),
    )
    found = described(member, TOPIC, "far")
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("77", 1)
    newer = found["of.a.newer.kafka"]
    assert (newer.value, newer.is_sensitive, newer.config_source) == (None, True, 1)


def test_settings_of_brokers_take_effect(member: Member) -> None:
    # The folder's own settings, which a member of a cluster takes from its metadata.
    member.on_loop(lambda: setattr(member.node.manager.settings, "_store", _Store(member)))
    member.replay(
        ConfigRecord(BROKER_RESOURCE, "", "message.max.bytes", "2000000"),
        ConfigRecord(BROKER_RESOURCE, "", "follower.replication.throttled.rate", "500"),
        ConfigRecord(BROKER_RESOURCE, "1", "leader.replication.throttled.rate", "1000"),
        ConfigRecord(BROKER_RESOURCE, "2", "leader.replication.throttled.rate", "7"),
        ConfigRecord(BROKER_RESOURCE, "1", "max.connections", "nonsense"),
    )
    settings = member.node.dynamic_settings
    assert settings.throttled_rate("leader.replication.throttled.rate") == 1000
    assert settings.throttled_rate("follower.replication.throttled.rate") == 500
    found = described(member, BROKER, "1")["message.max.bytes"]
    assert (found.value, [one.source for one in found.synonyms]) == ("2000000", [3, 5])
    member.replay(ConfigRecord(BROKER_RESOURCE, "1", "leader.replication.throttled.rate", None))
    assert settings.throttled_rate("leader.replication.throttled.rate") == 2**63 - 1


class _Store:
    """What a member's manager has in place of a metadata log."""

    def __init__(self, member: Member) -> None:
        self.image = member.plane.image
        self.node_id = 1


def test_very_many_resources(member: Member) -> None:
    """Read, looked at, sent on and answered in pieces."""
    member.plane.answer = controller = Controller()
    resources = [change(TOPIC if number % 2 else BROKER, str(number), ("a", "b")) for number in range(3000)]
    codes = changed(member, *resources)
    assert codes == ["NONE" if number % 2 or number == 1 else "INVALID_REQUEST" for number in range(3000)]
    assert len(controller.resources) == 1500
