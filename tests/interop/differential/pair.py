"""Apache Kafka and Tidelog side by side: what one is asked, the other is asked, too.

`Pair.ask` sends a request to both and remembers where their answers differ; `Pair.check` fails with all that came together.
An answer is a response, or how the connection ended. Masked is what each broker makes up by itself, and nothing else:

| field | compared as |
|---|---|
| cluster_id, host, port, log_dir | not at all |
| the broker's own id, wherever ids of brokers stand | "broker" |
| a topic's id | the topic's name |
| session_id | whether there is one |
| producer_id, in fields and in the headers of batches | what stands for it in `Side.producers`; else whether there is one |
| error_message, documentation: each has its own words | whether there is one |
| a time of this test's run, in fields and in the headers of batches | "now" |
| total_bytes, usable_bytes | not at all |

Lists that Kafka makes out of hash maps are sorted. A message may be a function of the side it is made for: topic ids and session
ids are each broker's own.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from tests.broker.raw import RawClient
from tests.interop.differential.deliberate import may_be_silent, reason_for
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.errors import CorruptBatchError
from tidelog.records.batch import LOG_APPEND_TIME_BIT, BatchHeader, compute_crc, iter_headers, read_header
from tidelog.records.scanner import unwrap
from tidelog.wire.codec import Message
from tidelog.wire.fields import Struct
from tidelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.produce import ProduceRequest

BROKER_IDS = {
    "node_id", "leader_id", "controller_id", "broker_id", "broker_ids", "replica_nodes", "isr_nodes", "offline_replicas",
}  # fmt: skip
ONES_OWN = {"cluster_id", "host", "port", "log_dir", "total_bytes", "usable_bytes"}
TIMES = {"timestamp", "log_append_time_ms", "last_timestamp", "transaction_start_time_ms"}
HASHED = {
    "MetadataResponseTopic": "name",
    "MetadataResponsePartition": "partition_index",
    "TopicProduceResponse": "name",
    "PartitionProduceResponse": "index",
    "DescribeConfigsResourceResult": "name",
    "DescribeLogDirsTopic": "name",
    "DescribeLogDirsPartition": "partition_index",
    "AlterConfigsResourceResponse": "resource_name",
    "DescribeConfigsResult": "resource_name",
    "CreatableTopicResult": "name",
    "CreatableTopicConfigs": "name",
    "DeletableTopicResult": "name",
    "CreatePartitionsTopicResult": "name",
    "DeleteRecordsTopicResult": "name",
    "DeleteRecordsPartitionResult": "partition_index",
    "DeletableGroupResult": "group_id",
    "ListedGroup": "group_id",
    "TransactionState": "transactional_id",
}
"""What Kafka keeps in hash maps on its way to the answer, and the field that it is sorted by here."""
TEXTS = {"error_message", "batch_index_error_message", "documentation"}
"""Who has not answered by then has not answered: TimeoutError."""
SILENCE_S = 5
"""How long is waited for an answer that Kafka never gives; Tidelog gives all of them, however late."""
MINUTE_MS = 60_000

_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")

MadeFor: TypeAlias = "Message | Callable[[Side], Message]"


class Side:
    """One of the two: a connection, and what it has made up so far."""

    def __init__(self, name: str, address: tuple[str, int]) -> None:
        self.name = name
        self.address = address
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.broker_id = -1
        self.last: Any = None
        """The last response, unmasked."""
        self.producers: dict[int, int] = {}
        """What stands for producers' ids, which are the broker's own."""
        self.compares_tails = True
        """Whether what is cut off after the last whole batch of a fetch is compared."""
        self._client: RawClient | None = None
        self._names: dict[uuid.UUID, str] = {}
        self._began_ms = time.time_ns() // 1_000_000 - MINUTE_MS

    def ask(self, message: Message, version: int, *, has_answer: bool, may_be_silent: bool = False) -> Any:
        """Return the masked response; "closed" or "nothing" where there is none, "silent" where there may be none."""
        self.last = None
        if self._client is None:
            self._client = RawClient(self.address)
        try:
            self._client.socket.settimeout(SILENCE_S if may_be_silent and self.name == "Kafka" else PATIENCE_S)
            self._client.send(message, version)
            if has_answer:
                self.last = self._client.receive()
                return self.masked(self.last)
            self._client.forget()
            # Whether the connection was closed shows in the next answer.
            self._client.ask(MetadataRequest(topics=[]), 1)
        except ConnectionError:
            self.close()
            return "closed"
        except TimeoutError:
            self.close()
            if not may_be_silent:
                raise TimeoutError(f"{self.name} has not answered {message} v{version} within {PATIENCE_S} s") from None
            return "silent"
        return "nothing"

    def ask_bytes(self, frame: bytes) -> Any:
        """Send a frame as it is, its size in front; return the answer's frame, or "closed"."""
        client = RawClient(self.address)
        try:
            client.send_bytes(frame)
            return client.receive_frame()
        except ConnectionError:
            return "closed"
        finally:
            client.close()

    def learn(self, response: Any) -> None:
        """Note the broker's id and the topics' ids in a response to Metadata v10 or above."""
        self.broker_id = response.brokers[0].node_id
        for topic in response.topics:
            if topic.topic_id.int:
                self.topic_ids[topic.name] = topic.topic_id
                self._names[topic.topic_id] = topic.name

    def masked(self, value: Any, name: str = "") -> Any:
        """Return a response as plain values that may be compared. See the module."""
        if isinstance(value, Struct):
            return {field.name: self.masked(getattr(value, field.name), field.name) for field in value.FIELDS}
        if name in ONES_OWN:
            return None if value is None else "its own"
        if isinstance(value, list):
            return [self.masked(element, name) for element in in_order(value)]
        if name in BROKER_IDS and value == self.broker_id:
            return "broker"
        if name == "session_id" and value > 0:
            return "some"
        if name == "producer_id" and value >= 0:
            return self.producers.get(value, "some")
        if name in TEXTS:
            return None if value is None else "a text"
        if name in TIMES:
            return self._time(value)
        if isinstance(value, uuid.UUID):
            return self._names.get(value, "unknown id" if value.int else "no id")
        if isinstance(value, memoryview):
            return self._records(bytearray(value))
        return value

    def _time(self, value: int) -> Any:
        return "now" if self._began_ms <= value <= self._began_ms + 60 * MINUTE_MS else value

    def _records(self, data: bytearray) -> bytes:
        """Append times of now become 0; checksums are computed again if they were right."""
        parts: list[bytes | bytearray] = []
        end = 0
        try:
            for header in iter_headers(bytes(data)):
                end = header.end_position
                batch = data[header.position : end]
                if header.magic == 2 and header.producer_id in self.producers:
                    _mask_producer(batch, header, self.producers[header.producer_id])
                _mask_batch(batch, read_header(batch), self._time)
                parts.append(self._unpacked(batch) if header.magic == 1 and header.is_compressed else batch)
        except CorruptBatchError as error:
            parts.append(repr(error).encode())
        return b"".join(parts) + (data[end:] if self.compares_tails else b"")

    def _unpacked(self, wrapper: bytearray) -> bytes:
        """A wrapper of format v1 with append times holds them in what it has compressed, too: that is what is compared."""
        inner = bytearray(unwrap(read_header(wrapper), wrapper, 0))
        if not wrapper[17] & LOG_APPEND_TIME_BIT:
            return bytes(wrapper)
        for header in iter_headers(bytes(inner)):
            message = inner[header.position : header.end_position]
            _mask_batch(message, header, self._time)
            inner[header.position : header.end_position] = message
        return bytes(wrapper[:8]) + bytes(wrapper[16:18]) + bytes(inner)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def in_order(elements: list[Any]) -> list[Any]:
    """Kafka answers some lists in the order of a hash map: those are sorted."""
    key = HASHED.get(type(elements[0]).__name__) if elements else None
    return elements if key is None else sorted(elements, key=lambda element: str(getattr(element, key)))


def _mask_batch(batch: bytearray, header: BatchHeader, as_time: Callable[[int], Any]) -> None:
    if header.magic == 0:
        return
    crc_at, times = (17, (27, 35)) if header.magic == 2 else (12, (18,))
    was_right = compute_crc(header.magic, batch) == header.crc
    for where in times:
        if as_time(_INT64.unpack_from(batch, where)[0]) == "now":
            _INT64.pack_into(batch, where, 0)
    if was_right:
        _UINT32.pack_into(batch, crc_at, compute_crc(header.magic, batch))


def _mask_producer(batch: bytearray, header: BatchHeader, stand_in: int) -> None:
    was_right = compute_crc(2, batch) == header.crc
    _INT64.pack_into(batch, 43, stand_in)
    if was_right:
        _UINT32.pack_into(batch, 17, compute_crc(2, batch))


class Difference(NamedTuple):
    """Two answers to one request that are not the same, and where."""

    label: str
    where: str
    kafka: Any
    tidelog: Any


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes {value[:60].hex(' ')}... {value[-30:].hex(' ')}"
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}... ({len(text)})"


class Pair:
    """Both brokers. Each request has a label, by which a deliberate difference is reported."""

    def __init__(self, kafka: tuple[str, int], tidelog: tuple[str, int]) -> None:
        self.kafka = Side("Kafka", kafka)
        self.tidelog = Side("Tidelog", tidelog)
        self.differences: list[Difference] = []
        self.asked = 0

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.kafka, self.tidelog

    def ask(self, label: str, message: MadeFor, version: int) -> Any:
        """Ask both; return Kafka's masked answer."""
        made = [message(side) if callable(message) else message for side in self.sides]
        has_answer = not (isinstance(made[0], ProduceRequest) and made[0].acks == 0)
        label = f"{label} v{version}"
        silent = may_be_silent(label)
        answers = [
            side.ask(one, version, has_answer=has_answer, may_be_silent=silent)
            for side, one in zip(self.sides, made, strict=True)
        ]
        self.asked += 1
        self.compare(label, *answers)
        return answers[0]

    def compare(self, label: str, kafka: Any, tidelog: Any, where: str = "") -> None:
        """Note where two answers differ."""
        if isinstance(kafka, dict) and isinstance(tidelog, dict) and kafka.keys() == tidelog.keys():
            for key in kafka:
                self.compare(label, kafka[key], tidelog[key], f"{where}.{key}")
        elif isinstance(kafka, list) and isinstance(tidelog, list) and len(kafka) == len(tidelog):
            for index, (one, other) in enumerate(zip(kafka, tidelog, strict=True)):
                self.compare(label, one, other, f"{where}[{index}]")
        elif isinstance(kafka, bytes) and isinstance(tidelog, bytes) and kafka != tidelog:
            same = next((at for at, (one, other) in enumerate(zip(kafka, tidelog, strict=False)) if one != other), 0)
            start = max(0, same - 20)
            self.differences.append(Difference(label, f"{where} byte {same}", kafka[start:], tidelog[start:]))
        elif kafka != tidelog:
            self.differences.append(Difference(label, where, kafka, tidelog))

    def check(self) -> None:
        """Fail if anything differed since the last check that `deliberate` does not list."""
        found, self.differences = self.differences, []
        unlisted: dict[tuple[str, ...], list[str]] = {}
        for one in found:
            reason = reason_for(one.label, one.where, one.kafka, one.tidelog)
            if reason is None:
                key = (one.label.rpartition(" v")[0], one.where, _short(one.kafka), _short(one.tidelog))
                unlisted.setdefault(key, []).append(one.label.rpartition(" v")[2])
        lines = [
            f"{label} v{','.join(versions)} {where}\n    Kafka   {kafka}\n    Tidelog {tidelog}"
            for (label, where, kafka, tidelog), versions in unlisted.items()
        ]
        assert not lines, f"{self.asked} asked, {len(found)} differences, {len(lines)} of them new:\n" + "\n".join(lines[:60])

    def create(self, *names: str, partitions: int = 1, **properties: Any) -> None:
        """Create topics, and wait until both lead them. Properties are Kafka's, `_` for `.`."""
        configs = [CreatableTopicConfig(key.replace("_", "."), str(value)) for key, value in properties.items()]
        request = CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], configs) for name in names], 30_000)
        for side in self.sides:
            side.ask(request, 4, has_answer=True)
            errors = [topic.error_code for topic in side.last.topics]
            assert not any(errors), (side.name, side.last)
            self.wait_for(side, names)

    def wait_for(self, side: Side, names: tuple[str, ...], version: int = 10) -> None:
        """Wait until a broker leads all partitions of topics, and note their ids."""
        topics = [MetadataRequestTopic(name=name) for name in names]
        at = version if side is self.tidelog else self.metadata_version
        wait_until(lambda: self._leads(side, topics, at), f"{side.name} to lead {names}")

    def _leads(self, side: Side, topics: list[MetadataRequestTopic], version: int) -> bool:
        side.ask(MetadataRequest(topics, False), version, has_answer=True)
        side.learn(side.last)
        if any(topic.error_code or not topic.partitions for topic in side.last.topics):
            return False
        # Kafka names itself as the leader a moment before it is: only what it answers as one shows.
        wanted = [
            ListOffsetsTopic(topic.name, [ListOffsetsPartition(one.partition_index, timestamp=-1) for one in topic.partitions])
            for topic in side.last.topics
        ]
        side.ask(ListOffsetsRequest(-1, topics=wanted), 1, has_answer=True)
        return not any(one.error_code for topic in side.last.topics for one in topic.partitions)

    metadata_version = 10

    def close(self) -> None:
        for side in self.sides:
            side.close()
