"""BrokerHeartbeat (key 63): a registered broker reports that it is alive, how far it has read the metadata, and whether it wants
to be fenced or to shut down (KIP-631).

The controller unfences a broker that has caught up and does not want to be fenced. A broker that wants to shut down loses its
leaderships first; `should_shut_down` permits it to exit.

| version | what it changed |
|---|---|
| 0 | flexible from the start |
| 1 | offline_log_dirs: data folders that failed (KIP-858) |
| 2 | cordoned_log_dirs: data folders that get no new partitions; None before the broker knows (KIP-1066) |
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, array, boolean, int16, int32, int64, uuid16


class BrokerHeartbeatRequest(Message, api="BrokerHeartbeat", key=63, versions="0-2", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[uuid.UUID] = array(uuid16, "1+", tag=0)
    cordoned_log_dirs: list[uuid.UUID] | None = array(uuid16, "2+", nullable="2+", default=None, tag=1)


class BrokerHeartbeatResponse(Message, api="BrokerHeartbeat", key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
