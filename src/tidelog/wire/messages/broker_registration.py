"""BrokerRegistration (key 62): a broker reports its id and its endpoints to the controller, and gets its epoch (KIP-631).

Each run of a broker has a new incarnation id. A broker with the id of another live broker is rejected with
DUPLICATE_BROKER_REGISTRATION; one that does not support a finalized feature, with UNSUPPORTED_VERSION.

| version | what it changed |
|---|---|
| 0 | flexible from the start |
| 1 | is_migrating_zk_broker (KIP-866) |
| 2 | log_dirs, the ids of the data folders (KIP-858) |
| 3 | previous_broker_epoch: the epoch of the previous run, if that ended cleanly (KIP-966) |
| 4 | features may begin at level 0; before, such features are left out (KAFKA-17492) |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, boolean, int16, int32, int64, string, uint16, uuid16


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class BrokerRegistrationRequest(Message, api="BrokerRegistration", key=62, versions="0-4", flexible="0+"):
    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: uuid.UUID = uuid16()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[uuid.UUID] = array(uuid16, "2+")
    previous_broker_epoch: int = int64("3+", default=-1)


class BrokerRegistrationResponse(Message, api="BrokerRegistration", key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)
