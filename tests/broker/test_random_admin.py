"""Random requests of the admin APIs, in every version: each is answered, and the broker goes on as before."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker
from tests.broker.raw import RawClient
from tests.broker.test_topic_admin import fill
from tests.wire.random_messages import random_struct
from tidelog.broker.apis import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    incremental_alter_configs,
    metadata,
)
from tidelog.broker.handling.api import Api
from tidelog.wire.fields import Struct
from tidelog.wire.messages.metadata import MetadataRequest

APIS = (
    alter_configs.API,
    create_partitions.API,
    create_topics.API,
    delete_records.API,
    delete_topics.API,
    describe_cluster.API,
    describe_configs.API,
    describe_log_dirs.API,
    incremental_alter_configs.API,
    metadata.API,
)
REQUESTS = 12
NAMES = {
    "name": ("a", "b", "fresh", "retention.ms", "cleanup.policy"),
    "topic": ("a", "b"),
    "topic_names": ("a", "b"),
    "resource_name": ("a", "b", "1", ""),
    "value": ("5", "compact", None),
}
NUMBERS = {
    "num_partitions": (-1, 0, 1, 2),
    "replication_factor": (-1, 1),
    "count": (1, 2, 3),
    "broker_ids": (1, 2),
    "partition_index": (0, 1),
    "resource_type": (2, 4, 8, 16),
    "config_operation": (0, 1, 2, 3),
    "offset": (-1, 0, 3),
}


def likelier(message: Struct, rng: random.Random) -> None:
    """Put values in the message's places that mean something: what is all nonsense is refused by the first check."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        choices: tuple[Any, ...] | None = NAMES.get(field.name) or NUMBERS.get(field.name)
        if isinstance(value, list):
            for one in value:
                if isinstance(one, Struct):
                    likelier(one, rng)
            if choices and value and not isinstance(value[0], Struct):
                setattr(message, field.name, [rng.choice(choices) for _ in value])
        elif choices and value is not None and (field.name in ("num_partitions", "count") or rng.random() < 0.8):
            setattr(message, field.name, rng.choice([one for one in choices if one is not None or field.name == "value"]))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.request.API_NAME)
def test_every_request_is_answered(broker: RunningBroker, client: RawClient, caplog: pytest.LogCaptureFixture, api: Api) -> None:
    broker.create_topic("a", 2)
    broker.create_topic("b")
    fill(broker, "a", 10)
    rng = random.Random(0)
    before = {name: logging.getLogger(name).level for name in ("tidelog", "tidelog.broker")}
    for version in range(api.served.first, api.served.last + 1):
        for _ in range(REQUESTS):
            message = random_struct(api.request, version, rng)
            likelier(message, rng)
            client.ask(message, version)
    assert {name: logging.getLogger(name).level for name in before} == before
    assert not any(record.exc_info for record in caplog.records), caplog.text
    assert client.ask(MetadataRequest(topics=None), 12).brokers
