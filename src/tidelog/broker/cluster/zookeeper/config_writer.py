"""Writes changed properties of topics and brokers to ZooKeeper, as Kafka's ZkAdminManager does.

| znode | |
|---|---|
| ``/config/topics/<topic>``, ``/config/brokers/<id>``, ``/config/brokers/<default>`` | all properties of the resource |
| ``/config/changes/config_change_<number>`` | the notification: all brokers, this one included, read the resource again |

A znode is written only if its version is still the one that was read, so no concurrent change is lost (Kafka may lose one). If
the connection is lost in between, everything is repeated: a second notification is harmless.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping

from tidelog.broker.cluster.zookeeper.configs import CHANGES, config_path, entity_of, properties_of
from tidelog.broker.cluster.zookeeper.session import RETRY_S, Session
from tidelog.broker.settings.protocol_version import ProtocolVersion
from tidelog.errors import BrokerUnreachableError
from tidelog.metadata.image import ConfigKey
from tidelog.metadata.records import TOPIC_RESOURCE

Changed = Callable[[Mapping[str, str]], Mapping[str, str]]

CHANGE = f"{CHANGES}/config_change_"


class ZookeeperConfigWriter:
    """A `ConfigWriter` that writes znodes. `learn` reads the result back, so that it is in effect here before the client is
    answered.
    """

    def __init__(
        self, session: Session, protocol: ProtocolVersion, learn: Callable[[list[tuple[str, str]]], Awaitable[None]]
    ) -> None:
        self._session = session
        self._protocol = protocol
        self._learn = learn

    async def change(self, key: ConfigKey, changed: Changed, timeout_s: float) -> Mapping[str, str]:
        """Change a resource's properties: see `ConfigWriter`. A lost connection is retried until the timeout."""
        reason = "no answer"
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        properties = await self._write(key, changed)
                        await self._tell(key)
                        await self._learn([entity_of(key)])
                        return properties
                    except BrokerUnreachableError as error:
                        reason = str(error)
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise BrokerUnreachableError(f"the properties may not have been written to ZooKeeper: {reason}") from None

    async def _write(self, key: ConfigKey, changed: Changed) -> Mapping[str, str]:
        path = config_path(key)
        while True:
            znode = await self._session.get(path)
            properties = changed(properties_of(znode))
            data = json.dumps({"version": 1, "config": properties}).encode()
            if znode is None:
                if await self._session.create(path, data):
                    return properties
            elif await self._session.set(path, data, znode.version) is not None:
                return properties

    async def _tell(self, key: ConfigKey) -> None:
        kind, name = entity_of(key)
        if self._protocol.is_at_least("0.10.1"):
            await self._session.create(CHANGE, _json({"version": 2, "entity_path": f"{kind}/{name}"}), is_sequence=True)
        elif key[0] == TOPIC_RESOURCE:
            # For older brokers. Brokers' properties have no such form: older brokers lack dynamic settings (KIP-226).
            await self._session.create(CHANGE, _json({"version": 1, "entity_type": kind, "entity_name": name}), is_sequence=True)


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode()
