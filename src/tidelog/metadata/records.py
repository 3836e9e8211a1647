"""The records of ``__cluster_metadata`` (KIP-631): one class each, with Kafka's names, keys, versions and tags.

`frame` has the frame around each record, `image` has each record's effect. These are all the records of Kafka 3.9.1 to 4.4.0.

| key | record | key | record |
|---|---|---|---|
| 0 | RegisterBroker | 15 | ProducerIds |
| 1 | UnregisterBroker | 17 | BrokerRegistrationChange |
| 2 | Topic | 18 | AccessControlEntry |
| 3 | Partition | 19 | RemoveAccessControlEntry |
| 4 | Config | 20 | NoOp |
| 5 | PartitionChange | 21 | ZkMigrationState |
| 7 | FenceBroker | 22 | RemoveUserScramCredential |
| 8 | UnfenceBroker | 23 | BeginTransaction |
| 9 | RemoveTopic | 24 | EndTransaction |
| 10 | DelegationToken | 25 | AbortTransaction |
| 11 | UserScramCredential | 26 | RemoveDelegationToken |
| 12 | FeatureLevel | 27 | RegisterController |
| 14 | ClientQuota | 28 | ClearElr (4.1) |
| | | 29 | UnregisterController (4.4) |

Times are epoch milliseconds. A tagged field that is None or has its default value means "unchanged".
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, boolean, data, float64, int8, int16, int32, int64, string, uint16, uuid16

NO_LEADER = -1
NO_LEADER_CHANGE = -2
"""The value of `PartitionChangeRecord.leader` that leaves the leader and its epoch unchanged."""

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32
"""The `ConfigRecord.resource_type` of brokers. A broker's resource name is its id; "" stands for all brokers."""


class BrokerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Message, key=0, versions="0-4", flexible="0+"):
    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: uuid.UUID = uuid16()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable="0+")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[uuid.UUID] = array(uuid16, "3+", tag=0)
    cordoned_log_dirs: list[uuid.UUID] | None = array(uuid16, "4+", nullable="4+", default=None, tag=1)


class UnregisterBrokerRecord(Message, key=1, versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Message, key=2, versions="0", flexible="0+"):
    name: str = string()
    topic_id: uuid.UUID = uuid16()


class PartitionRecord(Message, key=3, versions="0-2", flexible="0+"):
    partition_id: int = int32(default=-1)
    topic_id: uuid.UUID = uuid16()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=NO_LEADER)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[uuid.UUID] = array(uuid16, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=1)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=2)


class ConfigRecord(Message, key=4, versions="0", flexible="0+"):
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


class PartitionChangeRecord(Message, key=5, versions="0-2", flexible="0+"):
    partition_id: int = int32(default=-1)
    topic_id: uuid.UUID = uuid16()
    isr: list[int] | None = array(int32, nullable="0+", default=None, tag=0)
    leader: int = int32(default=NO_LEADER_CHANGE, tag=1)
    replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=3)
    adding_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: list[uuid.UUID] | None = array(uuid16, "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=7)


class FenceBrokerRecord(Message, key=7, versions="0", flexible="0+"):
    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Message, key=8, versions="0", flexible="0+"):
    id: int = int32()
    epoch: int = int64()


class RemoveTopicRecord(Message, key=9, versions="0", flexible="0+"):
    topic_id: uuid.UUID = uuid16()


class DelegationTokenRecord(Message, key=10, versions="0", flexible="0+"):
    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class UserScramCredentialRecord(Message, key=11, versions="0", flexible="0+"):
    name: str = string()
    mechanism: int = int8()
    salt: bytes = data()
    stored_key: bytes = data()
    server_key: bytes = data()
    iterations: int = int32()


class FeatureLevelRecord(Message, key=12, versions="0", flexible="0+"):
    name: str = string()
    feature_level: int = int16()


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ClientQuotaRecord(Message, key=14, versions="0", flexible="0+"):
    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class ProducerIdsRecord(Message, key=15, versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Message, key=17, versions="0-3", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[uuid.UUID] = array(uuid16, "2+", tag=2)
    cordoned_log_dirs: list[uuid.UUID] | None = array(uuid16, "3+", nullable="3+", default=None, tag=3)


class AccessControlEntryRecord(Message, key=18, versions="0", flexible="0+"):
    id: uuid.UUID = uuid16()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Message, key=19, versions="0", flexible="0+"):
    id: uuid.UUID = uuid16()


class NoOpRecord(Message, key=20, versions="0", flexible="0+"):
    pass


class ZkMigrationStateRecord(Message, key=21, versions="0", flexible="0+"):
    zk_migration_state: int = int8()


class RemoveUserScramCredentialRecord(Message, key=22, versions="0", flexible="0+"):
    name: str = string()
    mechanism: int = int8()


class BeginTransactionRecord(Message, key=23, versions="0", flexible="0+"):
    name: str | None = string(nullable="0+", default=None, tag=0)


class EndTransactionRecord(Message, key=24, versions="0", flexible="0+"):
    pass


class AbortTransactionRecord(Message, key=25, versions="0", flexible="0+"):
    reason: str | None = string(nullable="0+", default=None, tag=0)


class RemoveDelegationTokenRecord(Message, key=26, versions="0", flexible="0+"):
    token_id: str = string()


class ControllerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class ControllerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterControllerRecord(Message, key=27, versions="0", flexible="0+"):
    controller_id: int = int32()
    incarnation_id: uuid.UUID = uuid16()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)


class ClearElrRecord(Message, key=28, versions="0", flexible="0+"):
    topic_name: str = string()


class UnregisterControllerRecord(Message, key=29, versions="0", flexible="0+"):
    controller_id: int = int32()


RECORD_TYPES: dict[int, type[Message]] = {
    cls.API_KEY: cls for cls in list(vars().values()) if isinstance(cls, type) and issubclass(cls, Message) and cls is not Message
}
"""Every record type by its key."""
