"""AlterClientQuotas (key 49): sets and removes quotas of users, clients and addresses (KIP-546).

| version | what it changed |
|---|---|
| 1 | flexible |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, Struct, array, boolean, float64, int16, int32, string


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class OpData(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Message, api="AlterClientQuotas", key=49, versions="0-1", flexible="1+"):
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class EntryResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


EntryResult.__name__ = "EntryData"  # Kafka uses one name for both structs.


class AlterClientQuotasResponse(Message, api="AlterClientQuotas", key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    entries: list[EntryResult] = array(EntryResult)
