"""The options of `write` and `writeStream` to `format("tidelog")`, and the checks that need no target.

If Spark's Kafka connector has an option, its name and meaning are the same here, so a job written for `format("kafka")` only
needs the new format name. Option names are case-insensitive.

| | a broker | a folder |
|---|---|---|
| named by | `kafka.bootstrap.servers`, or `path` = host:port | `path` |
| a stream's guarantee | exactly-once by default | exactly-once |
| a batch write's guarantee | at-least-once by default | atomic |
| a missing topic | is created with the broker's settings | is created with `partitions` and `topic.<property>` |

Invariant: a `SinkOptions` is complete and consistent. The query (`query_id`) and its default `transactional_id` are known only in
the tasks; `for_query` adds them. This module does not import PySpark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from tidelog.config import LogConfig
from tidelog.errors import InvalidArgumentError
from tidelog.near_names import did_you_mean
from tidelog.records.compression import Codec
from tidelog.sources.opening import kind_of
from tidelog.spark.option_values import BROKERS, CLIENT, broker_addresses, check_topic, folder, is_of_connections
from tidelog.times import parse_duration

DEFAULT_BATCH_BYTES = 65_536
"""The size of a batch before compression. It is four times a producer's `batch.size`, because rows arrive in bulk."""

DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000
"""A producer's `transaction.timeout.ms`, after which a broker aborts a dead driver's transaction. Large commits request more."""

SINK_OPTIONS: dict[str, str] = {
    "path": "the Kafka data folder (log.dirs) to write segments into; or a broker's host:port",
    "kafka.bootstrap.servers": "brokers to write to, if path is not set: host:port, or several separated by commas",
    "topic": "the topic of every row; without this option, the column topic names each row's topic",
    "includeHeaders": "false leaves the column headers out",
    "compression": "none, gzip, snappy, lz4 or zstd (also kafka.compression.type)",
    "batchSize": "bytes of a batch before compression (also kafka.batch.size)",
    "deliveryGuarantee": "exactly-once or at-least-once",
    "transactionalId": "this writer's name in the target (also kafka.transactional.id); else tidelog-<query id>",
    "transactionTimeout": "how long brokers keep an open transaction, e.g. 5m (also kafka.transaction.timeout.ms); else by size",
    "atomic": "true: readers of committed records see all rows of a commit at once; large tasks then send through the driver",
    "spoolDir": "a folder shared by tasks and driver, for rows to be committed",
    "partitions": "a folder's new topics: how many partitions",
    "topic.<property>": "a folder's new topics: a property under Kafka's name, e.g. topic.segment.bytes",
}
"""All supported options, each with a one-line description."""

SPARKS_OWN = ("checkpointLocation", "queryName")
"""Options that Spark adds to a stream's options."""

ALIASES = {
    "compression": "kafka.compression.type",
    "batchSize": "kafka.batch.size",
    "transactionalId": "kafka.transactional.id",
    "transactionTimeout": "kafka.transaction.timeout.ms",
}
"""Options that have a different name in Kafka's producer."""

REFUSED_OF_PRODUCERS = ("kafka.key.serializer", "kafka.value.serializer")
"""Options that are refused, as in the connector: keys and values are bytes or text."""

Delivery = Literal["exactly-once", "at-least-once"]

_TOPIC_PROPERTY = "topic."
_NUMBER = re.compile(r"[+]?\d{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write, with defaults filled in. Exactly one of path and brokers is set."""

    path: str | None
    """The data folder; None for brokers."""
    brokers: str | None
    """The bootstrap servers as `host:port`, separated by commas; None for a folder."""
    topic: str | None
    include_headers: bool = True
    codec: Codec = Codec.NONE
    batch_bytes: int = DEFAULT_BATCH_BYTES
    delivery: Delivery = "exactly-once"
    transactional_id: str | None = None
    """The writer's transactional id in the target; None until the query is known."""
    query_id: str | None = None
    """The streaming query's id, which is in its checkpoint; None for a batch write, and until the query is known."""
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    is_timeout_given: bool = False
    """Whether the user set the timeout. If not, a large commit requests a longer timeout."""
    is_atomic: bool = False
    """Whether brokers get each commit in a single transaction, sent by the driver."""
    spool_dir: str | None = None
    partitions: int = 1
    """The number of partitions of a new topic in a folder."""
    topic_properties: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The target, for messages."""
        return self.path or self.brokers or ""

    def for_query(self, query_id: str | None) -> SinkOptions:
        """Return the options with a query's id. If no transactional id is set, it is derived from the query's id."""
        name = self.transactional_id
        if name is None and query_id is not None:
            name = f"tidelog-{query_id}"
        return replace(self, query_id=query_id, transactional_id=name)


def parse_sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Parse a write's options.

    Raises an InvalidArgumentError that names the option for any error in the options.
    """
    given = {key.lower(): value for key, value in options.items()}
    path, brokers = _target(given)
    notices = _refuse_unknown(given, path)
    delivery = _delivery(given, path, streaming)
    return SinkOptions(
        path=path,
        brokers=brokers,
        topic=_topic(given),
        include_headers=_choice(given, "includeHeaders", ("true", "false")) == "true",
        codec=Codec[_choice(given, "compression", ("none", "gzip", "snappy", "lz4", "zstd")).upper()],
        batch_bytes=_number(given, "batchSize", DEFAULT_BATCH_BYTES),
        delivery=delivery,
        transactional_id=_transactional_id(given, delivery),
        transaction_timeout_ms=_timeout_ms(given),
        is_timeout_given=_given(given, "transactionTimeout")[1] is not None,
        is_atomic=_choice(given, "atomic", ("false", "true")) == "true",
        spool_dir=folder(given, "spoolDir") if "spooldir" in given else None,
        partitions=_number(given, "partitions", 1),
        topic_properties=_topic_properties(given),
        notices=notices,
    )


def _target(given: Mapping[str, str]) -> tuple[str | None, str | None]:
    path = given.get("path", "").strip()
    option, brokers = ("path", path) if path else (BROKERS, given.get(BROKERS, "").strip())
    if path and not kind_of(path).is_cluster:
        return folder(given, "path"), None
    if not brokers:
        raise InvalidArgumentError(f"the sink needs the option {BROKERS} (brokers) or path (a data folder)")
    return None, broker_addresses(given, option, brokers)


def _refuse_unknown(given: Mapping[str, str], path: str | None) -> tuple[str, ...]:
    known = {name.lower() for name in (*SINK_OPTIONS, *ALIASES.values(), *SPARKS_OWN)}
    ignored, unknown = [], []
    for key in given:
        if key in REFUSED_OF_PRODUCERS:
            raise InvalidArgumentError(
                f"option {key}: keys and values are written without a serializer: cast them to string or binary"
            )
        if path is not None and key == BROKERS:
            ignored.append(key)
        elif (
            key in known
            or (path is None and is_of_connections(key))
            or (key.startswith(_TOPIC_PROPERTY) and key != _TOPIC_PROPERTY)
        ):
            if path is None and (key == "partitions" or key.startswith(_TOPIC_PROPERTY)):
                raise InvalidArgumentError(
                    f"option {key} is for a folder's new topics; brokers create topics with their own settings"
                )
        elif key.startswith(CLIENT):
            ignored.append(key)
        else:
            unknown.append(key)
    if unknown:
        names = ", ".join(sorted(SINK_OPTIONS))
        shown = ", ".join(f"{key}{did_you_mean(key, SINK_OPTIONS)}" for key in sorted(unknown))
        raise InvalidArgumentError(f"unknown option {shown}: the options for writing are {names}")
    return (f"options without effect here: {', '.join(sorted(ignored))}",) if ignored else ()


def _topic(given: Mapping[str, str]) -> str | None:
    text = given.get("topic")
    if text is None:
        return None
    topic = text.strip()
    check_topic("topic", topic)
    return topic


def _delivery(given: Mapping[str, str], path: str | None, streaming: bool) -> Delivery:
    if "deliveryguarantee" not in given:
        return "exactly-once" if streaming or path is not None else "at-least-once"
    chosen = cast("Delivery", _choice(given, "deliveryGuarantee", ("exactly-once", "at-least-once")))
    # A commit to a folder is always a rename, so writes to a folder are exactly-once.
    return "exactly-once" if path is not None else chosen


def _transactional_id(given: Mapping[str, str], delivery: Delivery) -> str | None:
    option, text = _given(given, "transactionalId")
    if text is None:
        return None
    if not text.strip():
        raise InvalidArgumentError(f"option {option} is empty")
    if delivery == "at-least-once":
        raise InvalidArgumentError(f"option {option} needs deliveryGuarantee exactly-once: at-least-once has no transactions")
    return text.strip()


def _timeout_ms(given: Mapping[str, str]) -> int:
    option, text = _given(given, "transactionTimeout")
    if text is None:
        return DEFAULT_TRANSACTION_TIMEOUT_MS
    try:
        timeout_ms = parse_duration(text)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"option {option}: {error}") from None
    if not 0 < timeout_ms < 2**31:
        raise InvalidArgumentError(f"option {option}: expected 1 ms to 24 days, found {text!r}")
    return timeout_ms


def _topic_properties(given: Mapping[str, str]) -> dict[str, str]:
    properties = {key.removeprefix(_TOPIC_PROPERTY): value for key, value in given.items() if key.startswith(_TOPIC_PROPERTY)}
    try:
        LogConfig.from_properties(properties)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"options {_TOPIC_PROPERTY}*: {error}") from None
    return properties


def _given(given: Mapping[str, str], option: str) -> tuple[str, str | None]:
    """Return the name by which an option was set, and its value. If both of its names are set, the values must agree."""
    names = [name for name in (option, ALIASES.get(option, option)) if name.lower() in given]
    if not names:
        return option, None
    values = {given[name.lower()].strip() for name in names}
    if len(values) > 1:
        raise InvalidArgumentError(f"options {' and '.join(names)} disagree")
    return names[0], values.pop()


def _choice(given: Mapping[str, str], option: str, choices: tuple[str, ...]) -> str:
    option, text = _given(given, option)
    chosen = choices[0] if text is None else text.lower()
    if chosen not in choices:
        raise InvalidArgumentError(f"option {option}: expected {' or '.join(choices)}, found {text!r}")
    return chosen


def _number(given: Mapping[str, str], option: str, default: int) -> int:
    option, text = _given(given, option)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text) or not 0 < int(text) < 2**31:
        raise InvalidArgumentError(f"option {option}: expected a positive number, found {text!r}")
    return int(text)
