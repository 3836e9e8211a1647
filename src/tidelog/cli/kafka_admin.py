"""Requests of `tidelog handover` to a running Kafka through its admin API: topics, their ids and settings.

Needs confluent-kafka, the optional extra `handover`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidelog.client.connections.cluster import Cluster
from tidelog.errors import BrokerUnreachableError, InvalidArgumentError, StorageError, TidelogError
from tidelog.formats.partition_metadata import parse_topic_id
from tidelog.storage.handover import TopicToHand

TIMEOUT_S = 30.0
POLL_S = 0.1


class Setting(NamedTuple):
    """A setting's value, and its source as text."""

    value: str
    source: str


_SOURCES = {
    1: "the topic's",
    2: "the broker's dynamic configuration",
    3: "the dynamic configuration of all brokers",
    4: "the broker's configuration",
    5: "Kafka's default",
}
"""Kafka's ConfigSource."""


class KafkaAdmin:
    """A broker's admin API. Raises InvalidArgumentError without confluent-kafka, StorageError if no broker answers."""

    def __init__(self, bootstrap: str, timeout_s: float = TIMEOUT_S) -> None:
        try:
            from confluent_kafka.admin import AdminClient
        except ImportError:
            raise InvalidArgumentError(
                "handover needs the package confluent-kafka: run pip install 'tidelog[handover]'"
            ) from None
        # On a port that requires TLS or SASL, confluent-kafka would retry forever without an error.
        try:
            with Cluster.at(bootstrap, "tidelog-handover", timeout_ms=int(timeout_s * 1000)) as cluster:
                cluster.refresh([])
        except BrokerUnreachableError as error:
            raise StorageError(f"Kafka at {bootstrap} cannot be reached: {error}") from error
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._client: Any = AdminClient(
            {"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": int(timeout_s * 1000)}
        )

    def partitions(self) -> dict[str, list[int]]:
        """Return, for each topic in Kafka, the number of replicas of each partition."""
        metadata = self._asked(lambda: self._client.list_topics(timeout=self._timeout_s))
        return {
            name: [len(topic.partitions[number].replicas) for number in sorted(topic.partitions)]
            for name, topic in metadata.topics.items()
        }

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        """Return the end offset of each partition of a topic."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        spec: Any = OffsetSpec
        places = {TopicPartition(topic, number): spec.latest() for number in range(partitions)}
        answers = self._client.list_offsets(places, request_timeout=self._timeout_s)
        return [self._asked(lambda place=place: answers[place].result(self._timeout_s)).offset for place in places]

    def create(self, topics: Iterable[TopicToHand]) -> None:
        """Create topics, one replica each."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        wanted = [NewTopic(one.name, one.partitions, 1, config=one.properties) for one in topics]
        if wanted:
            for made in self._client.create_topics(wanted, request_timeout=self._timeout_s).values():
                self._asked(lambda made=made: made.result(self._timeout_s))

    def settings(self, topic: str, names: Iterable[str]) -> dict[str, Setting]:
        """Return a topic's effective settings in Kafka, each with its source."""
        from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

        resource = ConfigResource(ResourceType.TOPIC, topic)
        (answer,) = self._client.describe_configs([resource], request_timeout=self._timeout_s).values()
        found = self._asked(lambda: answer.result(self._timeout_s))
        entries = {name: found[name] for name in names if name in found}
        return {name: Setting(one.value, _SOURCES.get(one.source, "Kafka's")) for name, one in entries.items()}

    def change(self, topic: str, properties: Mapping[str, str]) -> None:
        """Change settings of a topic. Its other settings stay unchanged."""
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in properties.items()]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        (answer,) = self._client.incremental_alter_configs([resource], request_timeout=self._timeout_s).values()
        self._asked(lambda: answer.result(self._timeout_s))

    def topic_ids(self, names: Iterable[str]) -> dict[str, uuid.UUID]:
        """Return the ids that Kafka has assigned to topics. Waits, because a broker knows a topic only a moment after the
        controller has created it.
        """
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        wanted = TopicCollection(list(names))
        end = time.monotonic() + self._timeout_s
        while True:
            described: Mapping[str, Any] = self._client.describe_topics(wanted, request_timeout=self._timeout_s)
            try:
                found = {name: str(answer.result(self._timeout_s).topic_id) for name, answer in described.items()}
                break
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > end:
                    raise _refused(self._bootstrap, error) from error
            time.sleep(POLL_S)
        ids = {}
        for name, text in found.items():
            topic_id = parse_topic_id(text)
            if topic_id is None:
                raise InvalidArgumentError(f"topic {name!r} has no id in Kafka: handover needs Kafka 2.8 or newer")
            ids[name] = topic_id
        return ids

    def _asked(self, ask: Any) -> Any:
        from confluent_kafka import KafkaException

        try:
            return ask()
        except KafkaException as error:
            raise _refused(self._bootstrap, error) from error


def _refused(bootstrap: str, error: Exception) -> TidelogError:
    reason = error.args[0] if error.args else error
    text = reason.str() if hasattr(reason, "str") else str(reason)
    return StorageError(f"Kafka at {bootstrap} refused the request: {text}")
