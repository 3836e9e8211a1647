"""Creates a mirror's missing target topics with the source's settings, and adds partitions if the source has more.

| of a source topic | the target's |
|---|---|
| number of partitions | the same; an existing topic gets missing partitions, and keeps additional ones |
| replication factor | the target's default, or the caller's |
| properties set on the topic | the same, except `LEFT_OUT` |
| defaults of the source's brokers | the same for the properties in `DECISIVE`: the records' format, and how long they are kept |
| unknown properties (a folder of Kafka, brokers before 0.11) | `message.timestamp.type` of the last batch |

An existing topic keeps its configuration, even if the source's differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tidelog.client.connections.cluster import NO_LEADER, Cluster
from tidelog.client.connections.failures import RetryTimer, error_for
from tidelog.client.reading.offsets import list_offsets
from tidelog.client.reading.partition_fetcher import PartitionFetcher
from tidelog.config import LOG_APPEND_TIME as LOG_APPEND_TIME_NAME
from tidelog.errors import BrokerError, BrokerUnreachableError, InvalidArgumentError, UnsupportedVersionError
from tidelog.model import EARLIEST, LATEST, TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.reader.time_search import FoundOffset
from tidelog.records.batch import LOG_APPEND_TIME
from tidelog.sources.source import Source
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)

M = TypeVar("M", bound=Message)

DECISIVE = frozenset({"message.timestamp.type", "cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes"})

LEFT_OUT = frozenset(
    {
        # These properties are about the source's replicas and brokers.
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "unclean.leader.election.enable",
        "min.insync.replicas",
        "remote.storage.enable",
        "local.retention.ms",
        "local.retention.bytes",
        # Copies are in v2; an older format would have no transactions.
        "message.format.version",
        "message.downconversion.enable",
        # The source's records may be old, and a limit would refuse them.
        "message.timestamp.difference.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
    }
)

_TOPIC = 2
_TOPIC_SOURCE = 1
_DEFAULT_SOURCE = 5
_CREATE_NEWEST = 7
_PARTITIONS_NEWEST = 3
_CONFIGS_NEWEST = 4
_LOOKED_BACK = 1_000
"""How many offsets before the end are searched for the last data batch, which shows the timestamp type. Markers do not show it.
"""

_NO_DEFAULT_VERSION = 4
"""Before this version CreateTopics requires a replication factor (KIP-464, Kafka 2.4)."""


@dataclass(frozen=True, slots=True)
class TopicShape:
    """The definition of a topic."""

    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A change made to a target topic."""

    topic: str
    had_partitions: int
    """The number of partitions before; 0 if the topic is new."""
    partitions: int


def shapes_of(source: Source, topics: Iterable[str]) -> dict[str, TopicShape]:
    """Return the shapes of the given topics that the source knows. Raises the errors of `shapes_of_cluster` and
    `shapes_of_folder`.
    """
    if source.cluster is not None:
        return shapes_of_cluster(source.cluster, topics)
    if source.log_dir is not None:
        return shapes_of_folder(source.log_dir, topics)
    return {name: TopicShape(max(source.partitions(name)) + 1) for name in topics}


def shapes_of_cluster(cluster: Cluster, topics: Iterable[str]) -> dict[str, TopicShape]:
    """Return the shapes of a cluster's topics. Raises UnknownTopicOrPartitionError, BrokerError, BrokerUnreachableError."""
    names = list(dict.fromkeys(topics))
    partitions = {name: len(cluster.topic_now(name).partitions) for name in names}
    resources = [DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=None) for name in names]
    try:
        answer = cluster.ask_any(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, newest=_CONFIGS_NEWEST)
    except UnsupportedVersionError:
        return {name: TopicShape(partitions[name], _seen_configs(cluster, name, partitions[name])) for name in names}
    found = {}
    for result in answer.results:
        if result.error_code:
            raise error_for(result.error_code, f"configuration of {result.resource_name}", cluster, result.error_message)
        configs = {one.name: one.value for one in result.configs if one.value is not None and _is_carried(one)}
        found[result.resource_name] = TopicShape(partitions[result.resource_name], configs)
    return found


def shapes_of_folder(log_dir: LogDir, topics: Iterable[str]) -> dict[str, TopicShape]:
    """Return the shapes of a data folder's topics. Raises UnknownTopicOrPartitionError, CorruptDataError, StorageError."""
    registered = read_topics(log_dir.metadata_path)
    found = {}
    for name in dict.fromkeys(topics):
        numbers = log_dir.partitions(name)
        known = registered.get(name)
        if known is not None:
            configs = {key: value for key, value in known.properties.items() if key not in LEFT_OUT}
            found[name] = TopicShape(max(known.partitions, numbers[-1] + 1), configs)
        else:
            found[name] = TopicShape(numbers[-1] + 1, _seen_in_folder(log_dir, name, numbers))
    return found


def ensure_topics(
    cluster: Cluster, wanted: Mapping[str, TopicShape], *, replication_factor: int | None = None
) -> list[TopicChange]:
    """Create missing topics and partitions, wait until all have leaders, and return the changes.

    Raises BrokerError with the target's message if it refuses something; BrokerUnreachableError, UnsupportedVersionError.
    """
    there = cluster.topics()
    changes = []
    missing = {name: shape for name, shape in wanted.items() if name not in there}
    if missing:
        _create(cluster, missing, replication_factor)
        changes += [TopicChange(name, 0, shape.partitions) for name, shape in missing.items()]
    small = {name: shape for name, shape in wanted.items() if name in there and len(there[name].partitions) < shape.partitions}
    if small:
        _extend(cluster, small)
        changes += [TopicChange(name, len(there[name].partitions), shape.partitions) for name, shape in small.items()]
    if changes:
        _wait_for_leaders(cluster, {change.topic: change.partitions for change in changes})
    return changes


def _is_carried(config: DescribeConfigsResourceResult) -> bool:
    if config.name in LEFT_OUT or config.is_sensitive:
        return False
    if config.config_source == -1:  # v0 only says whether a value is a default.
        return not config.is_default
    return config.config_source == _TOPIC_SOURCE or (config.name in DECISIVE and config.config_source != _DEFAULT_SOURCE)


def _seen_configs(cluster: Cluster, topic: str, partitions: int) -> dict[str, str]:
    keys = [TopicPartition(topic, number) for number in range(partitions)]
    ends, starts = list_offsets(cluster, dict.fromkeys(keys, LATEST)), list_offsets(cluster, dict.fromkeys(keys, EARLIEST))
    for key in keys:
        end, start = ends[key], starts[key]
        if isinstance(end, FoundOffset) and isinstance(start, FoundOffset) and start.offset < end.offset:
            for header, _, _ in PartitionFetcher(cluster, key, max(start.offset, end.offset - _LOOKED_BACK), end.offset):
                return _configs_of(header.timestamp_type)
    return {}


def _seen_in_folder(log_dir: LogDir, topic: str, partitions: Iterable[int]) -> dict[str, str]:
    for number in partitions:
        with log_dir.log(topic, number) as log:
            for header in log.headers(max(log.log_start_offset, log.log_end_offset - _LOOKED_BACK)):
                if not header.is_control:
                    return _configs_of(header.timestamp_type)
    return {}


def _configs_of(timestamp_type: int) -> dict[str, str]:
    return {"message.timestamp.type": LOG_APPEND_TIME_NAME} if timestamp_type == LOG_APPEND_TIME else {}


def _create(cluster: Cluster, missing: Mapping[str, TopicShape], replication_factor: int | None) -> None:
    def make(version: int) -> Message:
        if replication_factor is None and version < _NO_DEFAULT_VERSION:
            raise InvalidArgumentError(
                "brokers before Kafka 2.4 cannot choose a replication factor for a topic: give one", path=str(cluster)
            )
        return CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=shape.partitions,
                    replication_factor=-1 if replication_factor is None else replication_factor,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in sorted(shape.configs.items())],
                )
                for name, shape in missing.items()
            ],
            timeout_ms=cluster.timeout_ms,
        )

    def codes(answer: CreateTopicsResponse) -> list[tuple[str, int, str | None]]:
        return [(topic.name, topic.error_code, topic.error_message) for topic in answer.topics]

    _ask_controller(
        cluster, make, CreateTopicsResponse, codes, _CREATE_NEWEST, "creation of topic", ErrorCode.TOPIC_ALREADY_EXISTS
    )


def _extend(cluster: Cluster, small: Mapping[str, TopicShape]) -> None:
    def make(version: int) -> Message:
        topics = [CreatePartitionsTopic(name=name, count=shape.partitions, assignments=None) for name, shape in small.items()]
        return CreatePartitionsRequest(topics=topics, timeout_ms=cluster.timeout_ms)

    def codes(answer: CreatePartitionsResponse) -> list[tuple[str, int, str | None]]:
        return [(topic.name, topic.error_code, topic.error_message) for topic in answer.results]

    _ask_controller(cluster, make, CreatePartitionsResponse, codes, _PARTITIONS_NEWEST, "more partitions of topic", None)


def _ask_controller(
    cluster: Cluster,
    make: Callable[[int], Message],
    response: type[M],
    codes: Callable[[M], list[tuple[str, int, str | None]]],
    newest: int,
    what: str,
    is_fine: ErrorCode | None,
) -> None:
    """Send the request to one broker after another until a broker performs it. With KRaft any broker forwards the request; with
    ZooKeeper only the controller accepts it.
    """
    timer = RetryTimer(cluster.timeout_ms)
    while True:
        refusal: BrokerError | BrokerUnreachableError | None = None
        for address in dict.fromkeys(cluster.brokers.values()):
            try:
                with cluster.connection_to(address) as connection:
                    version = connection.version(type(make(newest)), newest=newest)
                    answer = connection.ask(make(version), version, response, wait_ms=cluster.timeout_ms)
            except BrokerUnreachableError as error:
                refusal = error
                continue
            refused = [one for one in codes(answer) if one[1] and one[1] != is_fine]
            if not refused:
                return
            name, code, detail = refused[0]
            if code != ErrorCode.NOT_CONTROLLER:
                raise error_for(code, f"{what} {name!r}", cluster, detail)
            refusal = BrokerError(f"{what} {name!r}: the cluster has no active controller", error_code=code, path=str(cluster))
        cluster.refresh(None)
        timer.wait(refusal or BrokerError(f"{what}: no broker is known", path=str(cluster)))


def _wait_for_leaders(cluster: Cluster, partitions: Mapping[str, int]) -> None:
    """Wait until metadata has all partitions, each with a leader."""
    timer = RetryTimer(cluster.timeout_ms)
    while True:
        there = cluster.topics()
        waiting = [
            f"{name}-{number}"
            for name, count in partitions.items()
            for number in range(count)
            if name not in there
            or number not in there[name].partitions
            or there[name].partitions[number].leader.node_id == NO_LEADER
        ]
        if not waiting:
            return
        timer.wait(BrokerError(f"partition {waiting[0]} was created, but has no leader yet", path=str(cluster)))
