"""Reads properties of topics and brokers from ZooKeeper: all of them at the start, then those named in change notifications.

| znode | |
|---|---|
| ``/config/topics/<topic>``, ``/config/brokers/<id>``, ``/config/brokers/<default>`` | ``{"version":1,"config":{…}}`` |
| ``/config/changes/config_change_<number>`` | the changed resource: ``entity_path``, or ``entity_type`` and ``entity_name`` |

A new topic's properties are written before the topic exists, without a notification; they are read together with the topic.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tidelog.broker.cluster.zookeeper.session import RETRY_S, Session, Znode, until
from tidelog.broker.loop.retry_log import RetryLog
from tidelog.errors import BrokerUnreachableError, TidelogError
from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.image import ConfigKey, MetadataImage
from tidelog.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigRecord

logger = logging.getLogger("tidelog.broker")

CHANGES = "/config/changes"
DEFAULT = "<default>"

_KINDS = {"topics": TOPIC_RESOURCE, "brokers": BROKER_RESOURCE}
_NAMES = {resource: kind for kind, resource in _KINDS.items()}

AT_ONCE = 200
"""The number of znodes read concurrently."""

Publish = Callable[[MetadataDelta], Awaitable[None]]


class Configs:
    """Keeps an image's properties up to date with ZooKeeper. Use only on the event loop's thread."""

    def __init__(self, session: Session, image: MetadataImage, publish: Publish) -> None:
        self._session = session
        self._image = image
        self._publish = publish
        self._seen: set[str] = set()
        self._log = RetryLog(logger)
        self._learning = asyncio.Lock()
        """Held from the first read to the publication, so that results are published in the order of the reads."""

    async def load(self) -> None:
        """Read all properties. Raises BrokerUnreachableError, and ZookeeperError if ZooKeeper refuses to return them."""
        # Changes notified from now on may be read twice, which is harmless.
        self._seen = set(await self._session.children(CHANGES))
        entities = [(kind, name) for kind in _KINDS for name in await self._session.children(f"/config/{kind}")]
        await self.learn(entities)

    async def learn(self, entities: Iterable[tuple[str, str]]) -> None:
        """Read the properties of resources, such as ("topics", name), and publish the differences. Raises what `load` raises."""
        wanted = list(entities)
        async with self._learning:
            delta = MetadataDelta(self._image)
            for start in range(0, len(wanted), AT_ONCE):
                some = wanted[start : start + AT_ONCE]
                found = await asyncio.gather(*(self._session.get(f"/config/{kind}/{name}") for kind, name in some))
                for (kind, name), znode in zip(some, found, strict=True):
                    self._take(delta, (_KINDS[kind], "" if name == DEFAULT else name), znode)
            if not delta.is_empty:
                await self._publish(delta)

    async def follow(self) -> None:
        """Follow change notifications until cancelled."""
        while True:
            event = asyncio.Event()
            try:
                names = set(await self._session.children(CHANGES, event))
                await self._changed(sorted(names - self._seen))
                self._seen = names
                self._log.works("config changes from ZooKeeper are applied again")
                await until(event)
            except BrokerUnreachableError:  # The loss of the connection is logged elsewhere.
                await asyncio.sleep(RETRY_S)
            except TidelogError as error:
                self._log.failed("cannot apply config changes from ZooKeeper, retrying: %s", error)
                await asyncio.sleep(RETRY_S)

    async def _changed(self, names: list[str]) -> None:
        entities: dict[tuple[str, str], None] = {}
        for name in names:
            znode = await self._session.get(f"{CHANGES}/{name}")
            found = None if znode is None else _entity(_json(znode.data))
            if found is not None and found[0] in _KINDS:
                entities[found] = None
        if entities:
            logger.info("the properties of these have changed in ZooKeeper: %s", ", ".join("/".join(one) for one in entities))
            await self.learn(entities)

    def _take(self, delta: MetadataDelta, key: ConfigKey, znode: Znode | None) -> None:
        wanted = properties_of(znode)
        known = self._image.configs.get(key, {})
        for name in known.keys() - wanted.keys():
            delta.replay(ConfigRecord(*key, name, None))
        for name, text in wanted.items():
            if known.get(name) != text:
                delta.replay(ConfigRecord(*key, name, text))


def properties_of(znode: Znode | None) -> dict[str, str]:
    """Return a resource's properties; an empty dict if the znode is missing or malformed."""
    value = {} if znode is None else _json(znode.data)
    config = value.get("config") if isinstance(value, dict) else None
    return {str(name): str(text) for name, text in config.items()} if isinstance(config, dict) else {}


def entity_of(key: ConfigKey) -> tuple[str, str]:
    """Return the type and name under which ZooKeeper stores the properties of a topic or a broker; ("brokers", "<default>") means
    all brokers.
    """
    return _NAMES[key[0]], key[1] or DEFAULT


def config_path(key: ConfigKey) -> str:
    """Return the path of the znode with a resource's properties."""
    return "/config/" + "/".join(entity_of(key))


def _json(data: bytes) -> Any:
    try:
        return json.loads(data) if data else {}
    except ValueError:
        # The content may include a password or a user's SCRAM keys, so it is not logged.
        logger.warning("ignoring a znode under /config, because it is not valid JSON (%d bytes)", len(data))
        return {}


def _entity(value: Any) -> tuple[str, str] | None:
    if not isinstance(value, dict):
        return None
    if "entity_path" in value:
        kind, _, name = str(value["entity_path"]).partition("/")
        return kind, name
    if "entity_type" in value:
        return str(value["entity_type"]), str(value.get("entity_name", ""))
    return None
