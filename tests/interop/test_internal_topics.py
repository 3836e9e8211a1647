"""Records of internal topics as JSON: Kafka's DumpLogSegments and its console consumer's formatters print the same.

| topic | judge |
|---|---|
| `__consumer_offsets` | DumpLogSegments for all kinds, OffsetsMessageFormatter for offsets |
| `__transaction_state` | TransactionLogMessageFormatter; DumpLogSegments prints something else than JSON |
| `__share_group_state` | DumpLogSegments and ShareGroupStateMessageFormatter, of 4.2 |
| `__cluster_metadata` | DumpLogSegments |

The values are random, in each version. A release skips tagged fields that are newer than it, and some kinds and versions.
"""

from __future__ import annotations

import functools
import json
import random
import re
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.jars import classpath, jars
from tests.kafka.java import run_java
from tests.kafka.tools import dump_log_segments
from tests.wire.definitions import from_jar
from tests.wire.random_messages import random_struct
from tidelog.metadata.frame import decode_record, encode_record
from tidelog.metadata.json_form import show_value as show_metadata
from tidelog.metadata.records import RECORD_TYPES
from tidelog.model import OFFSETS_TOPIC, SHARE_GROUPS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.wire.coordinator.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tidelog.wire.coordinator.group_metadata import GroupMetadataValue
from tidelog.wire.coordinator.json_form import KINDS, show_key, show_value
from tidelog.wire.coordinator.versioned import encode_versioned, version_of

RELEASES = ("3.9.1", "4.2.0")
PROGRAM = Path(__file__).parents[1] / "kafka" / "java_sources" / "FormatterProgram.java"
FORMATTERS = {
    OFFSETS_TOPIC: "org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
    TRANSACTIONS_TOPIC: "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter",
    SHARE_GROUPS_TOPIC: "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter",
}
ROUNDS = 20

Entry = tuple[bytes, bytes | None]
Judged = tuple[Any, Any]


def random_entries(topic: str) -> list[Entry]:
    rng = random.Random(topic)
    found: list[Entry] = []
    for key_version, (key_type, value_type) in KINDS[topic].items():
        for version in list(value_type.VERSIONS) * ROUNDS:
            key = encode_versioned(random_struct(key_type, key_version, rng), key_version)
            value = random_struct(value_type, version, rng)
            if isinstance(value, GroupMetadataValue) and rng.random() < 0.7:
                value.protocol_type = PROTOCOL_TYPE
                for member in value.members:
                    member.subscription, member.assignment = (
                        encode_versioned(random_struct(cls, number := rng.randrange(4), rng), number)
                        for cls in (ConsumerProtocolSubscription, ConsumerProtocolAssignment)
                    )
            found.append((key, encode_versioned(value, version)))
        found.append((key, None))
    return found


def ours(topic: str, entries: Iterable[Entry], release: str) -> list[Judged]:
    """Return what we say of entries, without the fields that the release does not know."""
    return [
        (show_key(topic, key), _known(show_value(topic, key, value), KINDS[topic][version_of(key)][1], release))
        for key, value in entries
    ]


def _known(shown: Any, cls: type, release: str) -> Any:
    return _keep(shown, names_of(release).get(cls.__name__, set()) | {"type", "version", "data"})


def _keep(shown: Any, names: set[str]) -> Any:
    if isinstance(shown, list):
        return [_keep(one, names) for one in shown]
    return {name: _keep(value, names) for name, value in shown.items() if name in names} if isinstance(shown, dict) else shown


def theirs(text: str | None) -> Any:
    """Return a key or value in one form: DumpLogSegments writes versions as text."""
    if text is None or text == "<DELETE>":
        return None
    return {name: int(one) if name != "data" and str(one).isdecimal() else one for name, one in json.loads(text).items()}


@functools.cache
def names_of(release: str) -> dict[str, set[str]]:
    """Return the names of the fields that a release knows, by message."""
    folder = jars(release)
    found: dict[str, set[str]] = {}

    def collect(names: set[str], fields: list[dict[str, Any]]) -> set[str]:
        for field in fields:
            names.add(field["name"][0].lower() + field["name"][1:])
            collect(names, field.get("fields", []))
        return names

    parts = ["clients", "group-coordinator", "transaction-coordinator", "share-coordinator", "metadata"]
    for jar in [jar for part in parts if (jar := folder / f"kafka-{part}-{release}.jar").exists()]:
        for name, definition in from_jar(jar).items():
            for fields in [definition, *definition.get("commonStructs", [])]:
                collect(found.setdefault(name, set()), fields.get("fields", []))
    for embedded in ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"):
        found["GroupMetadataValue"] |= found[embedded]
    return found


def dumped(entries: list[Entry], option: str, release: str, folder: Path) -> list[tuple[str | None, str | None]]:
    """Return the keys and values that DumpLogSegments prints."""
    file = folder / "00000000000000000000.log"
    records = [Record(offset, 0, CREATE_TIME, *entry) for offset, entry in enumerate(entries)]
    batches = [bytes(build_batch_v2(records[at : at + 100])) for at in range(0, len(records), 100)]
    file.write_bytes(b"".join(batches))
    lines = dump_log_segments([file], option, release=release).splitlines()
    found = [
        re.fullmatch(r"\| offset: .*? headerKeys: \[\](?: key: (.*?))?(?: payload: (.*))?", line)
        for line in lines
        if line.startswith("| offset")
    ]
    assert len(found) == len(entries)
    return [(None, None) if one is None else (one[1], one[2]) for one in found]


def judge(release: str, pairs: Iterable[tuple[tuple[str | None, str | None], Judged]]) -> int:
    """Compare what is JSON; return how much of it there is."""
    count = 0
    for (key, value), shown in pairs:
        if value is not None and (key is None or key.startswith("{")):
            assert shown == (theirs(key), theirs(value)), release
            count += 1
    return count


@pytest.mark.parametrize("release", RELEASES)
def test_groups_beside_dump_log_segments(release: str, tmp_path: Path) -> None:
    entries = random_entries(OFFSETS_TOPIC)
    shown = ours(OFFSETS_TOPIC, entries, release)
    assert len({key["type"] for key, _ in shown}) == 22
    found = dumped(entries, "--offsets-decoder", release, tmp_path)
    judged = judge(release, zip(found, shown, strict=True))
    assert judged == len([None for key, _ in found if key is not None and key.startswith("{")])
    # All of 4.2's but the versions of an offset that 0.8.2 could not write; of 3.9.1's, those that it has.
    assert judged >= (len(entries) - 4 * ROUNDS if release == "4.2.0" else 20 * ROUNDS)


@pytest.mark.parametrize("release", RELEASES)
def test_metadata_beside_dump_log_segments(release: str, tmp_path: Path) -> None:
    rng = random.Random(7)
    values = [
        encode_record(random_struct(cls, version, rng), version)
        for cls in RECORD_TYPES.values()
        for version in list(cls.VERSIONS) * ROUNDS
    ]
    shown = [(None, _known(show_metadata(value), type(decode_record(value)), release)) for value in values]
    found = dumped([(b"", value) for value in values], "--cluster-metadata-decoder", release, tmp_path)
    found = [(None, None if value is None or value.startswith("Error") else value) for _, value in found]
    assert judge(release, zip(found, shown, strict=True)) >= 25 * ROUNDS


def test_share_groups_beside_dump_log_segments(tmp_path: Path) -> None:
    entries = random_entries(SHARE_GROUPS_TOPIC)
    found = dumped(entries, "--share-group-state-decoder", "4.2.0", tmp_path)
    shown = ours(SHARE_GROUPS_TOPIC, entries, "4.2.0")
    assert judge("4.2.0", zip(found, shown, strict=True)) == len(entries)


@pytest.mark.parametrize(
    ("topic", "release"),
    [
        (OFFSETS_TOPIC, "3.9.1"),
        (OFFSETS_TOPIC, "4.2.0"),
        (TRANSACTIONS_TOPIC, "3.9.1"),
        (TRANSACTIONS_TOPIC, "4.2.0"),
        (SHARE_GROUPS_TOPIC, "4.2.0"),
    ],
)
def test_beside_the_formatters(topic: str, release: str) -> None:
    entries = [(key, value) for key, value in random_entries(topic) if topic != OFFSETS_TOPIC or key[1] in (0, 1)]
    lines = ["\t".join("-" if data is None else b64encode(data).decode() for data in entry) for entry in entries]
    printed = run_java(classpath(release), str(PROGRAM), [FORMATTERS[topic]], stdin="\n".join(lines) + "\n").splitlines()
    printed = [line for line in printed if not line.startswith("SLF4J")]
    shown = ours(topic, entries, release)
    judged = 0
    for line, (key, value) in zip(printed, shown, strict=True):
        if line:
            found = json.loads(line)
            if release == "3.9.1":
                found["key"]["type"] = found["key"].pop("version")
            assert (found["key"], found["value"]) == (key, value)
            judged += 1
    assert judged >= len(entries) / 2
