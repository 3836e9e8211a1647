"""A librdkafka client (confluent-kafka): produces records, consumes records, and looks up offsets by time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S


class Row(NamedTuple):
    """A record as the broker served it; timestamp in ms, -1 none; timestamp_type 0 none, 1 CreateTime, 2 LogAppendTime."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class NewRow(NamedTuple):
    """A record to produce."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]] = ()


def produce(
    bootstrap: str, topic: str, rows: Iterable[NewRow], partition: int = 0, *, batch_records: int = 100, **settings: object
) -> None:
    """Produce and wait until all are acknowledged. `batch_records` bounds a batch; settings are librdkafka's, `_` for `.`."""
    config: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 1,
        "batch.num.messages": batch_records,
        # Else a batch that is sent again (its leader has just changed) comes after the next ones.
        "max.in.flight.requests.per.connection": 1,
        "log_level": 0,
    }
    config |= {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer(config)
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    for row in rows:
        while True:
            try:
                producer.produce(
                    topic,
                    row.value,
                    row.key,
                    partition,
                    timestamp=row.timestamp,
                    headers=list(row.headers) or None,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    left = producer.flush(PATIENCE_S)
    if left or failed:
        raise RuntimeError(f"{topic}-{partition}: {left} records unacknowledged, {len(failed)} refused: {failed[:3]}")


def flush(producer: Producer) -> None:
    """Wait until all its messages are acknowledged or refused."""
    left = producer.flush(PATIENCE_S)
    if left:
        raise TimeoutError(f"{left} records have no answer after {PATIENCE_S} s")


def wait_until_ended(bootstrap: str, *transactional_ids: str) -> None:
    """Wait until the transactions that their producers have ended are so in all logs: markers come after the answer.

    A new producer of the id gets in no sooner. The former one can do no more.
    """
    for transactional_id in transactional_ids:
        config = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
        Producer(config).init_transactions(PATIENCE_S)


def create_topics(bootstrap: str, configs: Mapping[str, Mapping[str, str]], partitions: int = 1, replicas: int = 1) -> None:
    """Create topics with these settings and wait for their leaders."""
    make_topics(bootstrap, [NewTopic(name, partitions, replicas, config=dict(config)) for name, config in configs.items()])
    wait_for_leaders(bootstrap, dict.fromkeys(configs, partitions))


ASKED_AGAIN_S = 15
"""How long one request may take: metadata may still name a broker that has just ended, and the client waits for that one."""


def make_topics(bootstrap: str, wanted: Iterable[NewTopic]) -> None:
    """Create topics; asked for again where the broker that was asked has left the cluster's metadata, as a slow one does."""
    left = {topic.topic: topic for topic in wanted}
    maybe_made: set[str] = set()

    def are_made() -> bool:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for name, created in admin.create_topics(list(left.values()), request_timeout=ASKED_AGAIN_S).items():
            try:
                created.result(PATIENCE_S)
            except KafkaException as error:
                code = error.args[0].code()
                if code in _UNANSWERED:
                    maybe_made.add(name)
                    continue
                if code != KafkaError.TOPIC_ALREADY_EXISTS or name not in maybe_made:
                    raise
            del left[name]
        return not left

    wait_until(are_made, f"topics {', '.join(left)}", PATIENCE_S)


_UNANSWERED = {
    KafkaError._DESTROY_BROKER,  # type: ignore[attr-defined]
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.INVALID_REPLICATION_FACTOR,
}
"""librdkafka's own codes begin with an underscore. The last one: a broker is fenced."""


def metadata(admin: AdminClient, topic: str | None = None) -> ClusterMetadata:
    """Return what a broker knows of the cluster, or of one topic; asked for again while no broker answers."""
    told: list[ClusterMetadata] = []

    def is_told() -> bool:
        try:
            told.append(admin.list_topics(topic, timeout=ASKED_AGAIN_S))
        except KafkaException as error:
            if error.args[0].code() not in _UNANSWERED:
                raise
            return False
        return True

    wait_until(is_told, "a broker that answers Metadata", PATIENCE_S)
    return told[0]


def wait_for_leaders(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Wait until each partition of the topics answers: Kafka's brokers hear of new ones after whoever made them.

    Each time with a new client: librdkafka keeps what it heard of a topic for minutes, also that a partition is missing.
    """
    ends = {TopicPartition(topic, number): OffsetSpec.latest() for topic, count in topics.items() for number in range(count)}
    refused: list[KafkaException] = []

    def all_lead() -> bool:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        try:
            for answer in admin.list_offsets(ends, request_timeout=PATIENCE_S).values():
                answer.result(PATIENCE_S)
        except KafkaException as error:
            refused.append(error)
            return False
        return True

    try:
        wait_until(all_lead, f"the leaders of {', '.join(topics)}")
    except TimeoutError as error:
        raise error from refused[-1]


def wait_until_decided(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until no transaction is open: Kafka writes the markers a moment after it has said that one is committed."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}  # type: ignore[no-untyped-call]

    def ends(isolation: IsolationLevel) -> list[int]:
        told = admin.list_offsets(asked, isolation_level=isolation, request_timeout=PATIENCE_S)
        return [told[place].result(PATIENCE_S).offset for place in asked]

    # In this order: what comes meanwhile makes a difference.
    wait_until(
        lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED),
        f"the markers in {topic}",
        PATIENCE_S,
    )


def commit_offsets(bootstrap: str, group: str, offsets: Iterable[TopicPartition]) -> None:
    """Commit for a group without members, until all of it is: a Kafka that has just made its offsets topic is NOT_COORDINATOR.

    librdkafka does not ask again then, nor where its coordinator has left the metadata for a moment, and its future does
    not raise what each partition is reported.
    """
    wanted = ConsumerGroupTopicPartitions(group, list(offsets))

    def is_committed() -> bool:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        (answer,) = admin.alter_consumer_group_offsets([wanted], request_timeout=PATIENCE_S).values()
        try:
            return all(place.error is None for place in answer.result(PATIENCE_S).topic_partitions)
        except KafkaException as error:
            if error.args[0].code() not in _UNANSWERED:
                raise
            return False

    wait_until(is_committed, f"offsets of {group}, as committed")


def alter_topic(bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
    """Change settings of a topic; other settings are unchanged."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def watermarks(bootstrap: str, topic: str, partition: int = 0, *, isolation: str = "read_uncommitted") -> tuple[int, int]:
    """Return (log start offset, high watermark); with read_committed the last stable offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests", "log_level": 0, "isolation.level": isolation})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_S)
        return low, high
    finally:
        consumer.close()


def consume(
    bootstrap: str, topic: str, partition: int = 0, *, isolation: str = "read_uncommitted", start: int | None = None
) -> list[Row]:
    """Return every record from `start` (default: the log start) to the end of the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    rows: list[Row] = []
    try:
        if start is None:
            start = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_S)[0]
        consumer.assign([TopicPartition(topic, partition, start)])
        while True:
            message = consumer.poll(PATIENCE_S)
            if message is None:
                raise RuntimeError(f"{topic}-{partition}: the broker sent nothing for {PATIENCE_S} s after {len(rows)} records")
            error = message.error()
            if error is None:
                rows.append(_row(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                return rows
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


def consume_all(bootstrap: str, topics: Iterable[str], *, isolation: str = "read_uncommitted") -> dict[str, list[Row]]:
    """Return every record of these topics of one partition, all read by one consumer: quicker than one after the other."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "isolation.level": isolation,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    rows: dict[str, list[Row]] = {topic: [] for topic in topics}
    waiting = set(rows)
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in rows])
        while waiting:
            messages = consumer.consume(1000, 0.2) or consumer.consume(1, PATIENCE_S)
            if not messages:
                raise RuntimeError(f"the broker sent nothing for {PATIENCE_S} s; {sorted(waiting)} are not at their ends")
            for message in messages:
                error = message.error()
                if error is None:
                    rows[str(message.topic())].append(_row(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(str(message.topic()))
                else:
                    raise KafkaException(error)
        return rows
    finally:
        consumer.close()


def _row(message: Any) -> Row:  # confluent-kafka's stubs say less than its messages hold
    kind, timestamp = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Row(message.offset(), timestamp if kind else -1, kind, message.key(), message.value(), headers)


def offset_for_time(admin: AdminClient, topic: str, partition: int, timestamp: int) -> tuple[int, int] | int:
    """Return the broker's (offset, timestamp) for a time, (-1, -1) where it has none; a Kafka error code where it refuses."""
    return _list_offsets(admin, topic, partition, OffsetSpec.for_timestamp(timestamp))


def offset_of_max_timestamp(admin: AdminClient, topic: str, partition: int) -> tuple[int, int] | int:
    """Return the broker's (offset, timestamp) of the largest timestamp (ListOffsets -3)."""
    return _list_offsets(admin, topic, partition, OffsetSpec.max_timestamp())  # type: ignore[no-untyped-call]


def _list_offsets(admin: AdminClient, topic: str, partition: int, spec: OffsetSpec) -> tuple[int, int] | int:
    place = TopicPartition(topic, partition)
    try:
        answer = admin.list_offsets({place: spec}, request_timeout=PATIENCE_S)[place].result(PATIENCE_S)
    except KafkaException as error:
        return int(error.args[0].code())
    return answer.offset, answer.timestamp


def list_offsets(
    admin: AdminClient, specs: Mapping[str, OffsetSpec], isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
) -> dict[str, tuple[int, int] | int]:
    """Return the broker's answers for topics of one partition, in one request: (offset, timestamp), or an error code."""
    asked = {TopicPartition(topic, 0): spec for topic, spec in specs.items()}
    answers: dict[str, tuple[int, int] | int] = {}
    for place, future in admin.list_offsets(asked, isolation_level=isolation, request_timeout=PATIENCE_S).items():
        try:
            answer = future.result(PATIENCE_S)
        except KafkaException as error:
            answers[place.topic] = int(error.args[0].code())
        else:
            answers[place.topic] = answer.offset, answer.timestamp
    return answers
