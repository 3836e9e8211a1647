"""APIs that Kafka 3.9.1 lists, and whose features are off there by default or cannot change: both answer alike."""

from __future__ import annotations

import uuid

import pytest

from tests.interop.differential.pair import Pair
from tidelog.broker.apis.api_versions import LAST_OF_3_9
from tidelog.wire.codec import Message
from tidelog.wire.messages.add_raft_voter import AddRaftVoterRequest, VoterListener
from tidelog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from tidelog.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from tidelog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from tidelog.wire.messages.list_client_metrics_resources import ListClientMetricsResourcesRequest
from tidelog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from tidelog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from tidelog.wire.messages.unregister_broker import UnregisterBrokerRequest
from tidelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

ONE = uuid.UUID(int=5)
LISTENERS = [VoterListener("CONTROLLER", "localhost", 9093)]


def moved(path: str, *partitions: int) -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [AlterReplicaLogDirTopic("no-such-topic", [*partitions])])])


def updated(name: str, level: int, upgrade_type: int = 1) -> UpdateFeaturesRequest:
    update = FeatureUpdateKey(name, level, upgrade_type=upgrade_type)
    return UpdateFeaturesRequest(feature_updates=[update], validate_only=True)


CASES: dict[str, Message] = {
    "heartbeat": ConsumerGroupHeartbeatRequest("g", "", 0, subscribed_topic_names=["t"]),
    "heartbeat of no group": ConsumerGroupHeartbeatRequest("", "m", 5),
    "describe groups": ConsumerGroupDescribeRequest(["g", "", "h"], include_authorized_operations=True),
    "describe no group": ConsumerGroupDescribeRequest([]),
    "client metrics": ListClientMetricsResourcesRequest(),
    "token": CreateDelegationTokenRequest(None, None, [], -1),
    "token for renewers": CreateDelegationTokenRequest("User", "bob", [CreatableRenewers("User", "alice")], 1000),
    "token later": RenewDelegationTokenRequest(b"hmac", -1),
    "token sooner": ExpireDelegationTokenRequest(b"hmac", -1),
    "all tokens": DescribeDelegationTokenRequest(None),
    "no tokens": DescribeDelegationTokenRequest([]),
    "to an unknown folder": moved("/no-such-folder", 0),
    "to a relative folder": moved("data", 0),
    "to no folder": AlterReplicaLogDirsRequest([]),
    "no features": UpdateFeaturesRequest(),
    "the level it has": updated("metadata.version", 21),
    "a level that is too high": updated("metadata.version", 22),
    "a lower level": updated("metadata.version", 20),
    "an unknown feature": updated("nonsense", 2),
    "no name of a feature": updated("", 2),
    "another broker's feature": updated("group.version", 1),
    "kraft.version too high": updated("kraft.version", 2),
    "an unknown type of upgrade": updated("metadata.version", 21, 9),
    "a broker that there is not": UnregisterBrokerRequest(99),
    "a voter more": AddRaftVoterRequest(None, 1000, 2, ONE, LISTENERS),
    "a voter less": RemoveRaftVoterRequest(None, 2, ONE),
}


@pytest.mark.parametrize("label", CASES)
def test_what_is_off(pair: Pair, label: str) -> None:
    message = CASES[label]
    last = LAST_OF_3_9.get(message.API_NAME, message.VERSIONS[-1])
    for version in range(message.VERSIONS[0], last + 1):
        if version or message.API_NAME != "UpdateFeatures":
            pair.ask(label, message, version)
    pair.check()
