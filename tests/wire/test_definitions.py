"""The tables say what Kafka's definitions say that kafka-python carries: those of Kafka 4, whose old versions are gone.

The definitions inside Kafka's jars, which know them all, are asked in tests/interop/test_wire_definitions.py.
"""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.wire.definitions import Definition, from_folder
from tests.wire.judging import declaration_differences, judge_bytes, versions_of
from tests.wire.random_messages import message_classes
from tidelog.wire.codec import Message

DEFINITIONS: dict[str, Definition] = from_folder(
    Path(str(distribution("kafka-python").locate_file("kafka/protocol/schemas/resources")))
)
KNOWN = [cls for cls in message_classes() if cls.__name__ in DEFINITIONS]
VERSIONS = versions_of(DEFINITIONS, KNOWN)


def test_what_is_missing_there() -> None:
    missing = {cls.API_NAME for cls in message_classes() if cls not in KNOWN}
    assert missing == {
        "AddRaftVoter",
        "AllocateProducerIds",
        "AlterPartition",
        "AssignReplicasToDirs",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "ConsumerGroupDescribe",
        "ConsumerGroupHeartbeat",
        "ControlledShutdown",
        "CreateDelegationToken",
        "DefaultPrincipalData",
        "DescribeDelegationToken",
        "DescribeShareGroupOffsets",
        "Envelope",
        "ExpireDelegationToken",
        "FetchSnapshot",
        "LeaderAndIsr",
        "ListClientMetricsResources",
        "RemoveRaftVoter",
        "RenewDelegationToken",
        "ShareGroupDescribe",
        "StopReplica",
        "UnregisterBroker",
        "UpdateMetadata",
    }


def test_declarations() -> None:
    assert declaration_differences(DEFINITIONS, KNOWN) == []


@pytest.mark.parametrize("cls", {cls: None for cls, _ in VERSIONS}, ids=lambda cls: cls.__name__)
def test_bytes(cls: type[Message]) -> None:
    for version in (version for one, version in VERSIONS if one is cls):
        judge_bytes(cls, DEFINITIONS[cls.__name__], version, rounds=5)
