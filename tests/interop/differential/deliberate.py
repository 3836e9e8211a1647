"""Where Tidelog answers something else than Kafka, on purpose. Each line names the case, the field, both values, and why.

`docs/broker.md` has the same table for readers. A line that no answer bears out any more is a failure (test_whole_table).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class Deliberate(NamedTuple):
    """A difference that is meant. `label` and `where` are regular expressions; a value of ... is any."""

    label: str
    where: str
    kafka: Any
    tidelog: Any
    why: str


TABLE: tuple[Deliberate, ...] = (
    Deliberate(
        r".*: (plain|gzip) length \+2147\d+ v\d+",
        r".*\.error_code",
        -1,
        87,
        "a length that overflows once 12 is added trips Kafka (UNKNOWN_SERVER_ERROR); here such a batch is not all there",
    ),
    Deliberate(
        r"(uncompressed|lz4|zstd): gzip byte \d+ .. v\d+",
        r".*\.error_code",
        87,
        -1,
        "a damaged gzip stream: Kafka's answer depends on whether its records are rewritten; here it is UNKNOWN_SERVER_ERROR",
    ),
    Deliberate(
        r"null records v\d+",
        "",
        "silent",
        ...,
        "null in place of records: Kafka never answers; here it is UNKNOWN_SERVER_ERROR",
    ),
    Deliberate(
        r"deleted from: special -3 isolation . v[789]",
        r"\.topics\[0\]\.partitions\[0\]\.(timestamp|offset)",
        ...,
        ...,
        "the largest timestamp after records were deleted: Kafka names a record that is gone; here it is one that can be read",
    ),
    Deliberate(
        r"lowered from .* v[0-3]",
        r".*\.records byte \d+",
        ...,
        ...,
        "message.format.version was lowered: Kafka 2.4.1 goes by the topic's setting and sends old fetchers the newer formats "
        "that stand in the log, which they cannot read; here each batch is converted to what they can",
    ),
    Deliberate(
        r"v[01]-compact magic 2: none 5 descending v6",
        r".*\.error_code",
        -1,
        87,
        "a record without key for a compacted topic: 2.4.1 has no code for it before Produce v8; 3.9.1 and Tidelog have",
    ),
    Deliberate(
        r"OffsetForLeaderEpochRequest changed .*",
        r".*\.(leader_epoch|end_offset)",
        ...,
        -1,
        "an epoch below -1: Kafka takes it for an old one that ended where the log begins; here there is none",
    ),
    Deliberate(
        r"fetch session -2147483648 epoch -?. v\d+",
        r"(\.session_id|\.error_code|\.responses.*)",
        ...,
        ...,
        "a session id below -2^28 trips Kafka (UNKNOWN_SERVER_ERROR); here it is one that there is not",
    ),
    Deliberate(
        r"after a segment .* v\d+",
        r"\.topics\[0\]\.partitions\[0\]\.(timestamp|offset|leader_epoch)",
        -1,
        ...,
        "a search by time: Kafka asks the first segment whose largest timestamp reaches the target, and no other; a segment "
        "without timestamps counts as written when its file was; here the search goes on until there is a record",
    ),
    Deliberate(
        r".* magic 1: plain magic 2 v[12]",
        r".*\.error_code",
        -1,
        2,
        "a batch of format v2 that is shorter than its header trips Kafka; here it is CORRUPT_MESSAGE",
    ),
    Deliberate(
        r".*: the same protocol twice v\d+",
        r"\.(protocol_name|members\[0\]\.metadata byte \d+)",
        ...,
        ...,
        "a member that names a protocol twice: Kafka counts it twice, and then takes it for one that not all members have",
    ),
    Deliberate(
        r"a: join with unreadable metadata v9",
        "",
        "waits",
        ...,
        "a consumer's metadata that is none: Kafka's group waits forever; here its members are reported the generation",
    ),
    Deliberate(
        r"no groups v9",
        "",
        "silent",
        ...,
        "OffsetFetch for no groups at all: Kafka never answers; here nothing is found",
    ),
    Deliberate(
        r"broker's (offsets\.topic\.replication\.factor|transaction\.state\.log\.(replication\.factor|min\.isr)) v\d",
        r"\[2\]",
        ...,
        ...,
        "copies of the coordinators' topics: Kafka's default is 3, of which 2 must be there; one broker has 1",
    ),
    Deliberate(
        r"(offsets|records) of a newer epoch v\d",
        r".*\.(error_code|base_offset|log_start_offset|log_append_time_ms)",
        ...,
        ...,
        "an epoch that the producer was not given, while its transaction is open in the log: Kafka writes what comes with it, "
        "and cannot end the transaction any more; here it is refused as it is before there is anything",
    ),
    Deliberate(
        r"none v5",
        "",
        "silent",
        ...,
        "AddPartitionsToTxn for no transactions at all: Kafka never answers; here nothing is added",
    ),
    Deliberate(
        r"a partition twice v\d+",
        r".*\.results_by_partition",
        ...,
        ...,
        "AddPartitionsToTxn that names a partition twice: Kafka says twice that it is added, here it is said once",
    ),
    Deliberate(
        r"(.* )?describe v0",
        r"\.transaction_states\[0\]\.transaction_start_time_ms",
        "now",
        -1,
        "a producer that got a new epoch, and has no transaction: until it is started again, Kafka remembers when the last one "
        "began; here none has",
    ),
)


def may_be_silent(label: str) -> bool:
    """Return whether it is meant that Kafka never answers this."""
    return any(line.kafka in ("silent", "waits") and re.fullmatch(line.label, label) for line in TABLE)


SEEN: set[int] = set()
"""The lines that an answer of this run has borne out."""

RAN: set[str] = set()
"""The modules of which a test ran in this process."""


def reason_for(label: str, where: str, kafka: Any, tidelog: Any) -> str | None:
    """Return why a difference is meant; None if it is not."""
    for index, line in enumerate(TABLE):
        is_there = re.fullmatch(line.label, label) and re.fullmatch(line.where, where)
        if is_there and line.kafka in (..., kafka) and line.tidelog in (..., tidelog):
            SEEN.add(index)
            return line.why
    return None
