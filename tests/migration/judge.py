"""What the play is judged by: formats in the logs, what old and new clients get, and at the end that every promise was kept."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import tidelog
from tests.kafka import old_wire
from tests.kafka.java import wait_until
from tests.kafka.tidelog_node import TIDELOG
from tests.migration.clients import Reader, Writer
from tests.migration.java_clients import JavaReader, JavaWriter
from tests.migration.nodes import Node
from tests.patience import PATIENCE_S
from tidelog.records.batch import iter_headers

TIMES = 40
"""So many are searched in each replica."""

TICKS = os.sysconf("SC_CLK_TCK")


def bytes_of(data: Path, topic: str, partition: int) -> bytes:
    """Return the bytes of a replica in a data folder."""
    return b"".join(path.read_bytes() for path in sorted((data / f"{topic}-{partition}").glob("*.log")))


def log_of(node: Node, topic: str, partition: int) -> bytes:
    """Return the bytes of a broker's replica."""
    return bytes_of(node.data, topic, partition)


def formats(node: Node, topic: str, partition: int) -> list[tuple[int, int]]:
    """Return the formats of a replica in their order: (magic, first offset)."""
    found: list[tuple[int, int]] = []
    first = 0
    for header in iter_headers(log_of(node, topic, partition)):
        if not found or found[-1][0] != header.magic:
            found.append((header.magic, first))
        first = header.last_offset + 1
    return found


def text_of(found: Iterable[tuple[int, int]]) -> str:
    return " ".join(f"v{magic} from {offset}" for magic, offset in found) or "nothing"


def digest(node: Node, topic: str, partition: int) -> str:
    return hashlib.sha256(log_of(node, topic, partition)).hexdigest()


class Cost(NamedTuple):
    """What a fetcher gets of a leader, and what it costs that."""

    magics: list[int]
    is_as_stored: bool
    cpu_ms_per_mb: float


def cost(node: Node, topic: str, partition: int, offset: int, version: int, seconds: float) -> Cost:
    """Read a partition that a node leads from an offset on, over and over, with a version of Fetch."""
    stored = log_of(node, topic, partition)
    (start, *_) = [header.position for header in iter_headers(stored) if header.last_offset >= offset]
    stored = stored[start:]

    def read() -> bytes:
        answer = old_wire.fetch(lambda: node.port, topic, offset, version=version, partition=partition, max_bytes=len(stored))
        return bytes(answer.records or b"")

    got = read()
    began, ticks, size = time.monotonic(), _ticks(node.pid), 0
    while time.monotonic() - began < seconds:
        size += len(read())
    used_ms = (_ticks(node.pid) - ticks) * 1000 / TICKS
    return Cost(old_wire.magics(got), got == stored[: len(got)], used_ms / (size / 1e6))


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def verified(nodes: Iterable[Node], topic: str) -> subprocess.CompletedProcess[str]:
    """Return what `tidelog verify --replicas` says of the brokers' folders."""
    command = [TIDELOG, "verify", "--replicas", *(str(node.data) for node in nodes), "--topic", topic]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def sound(node: Node, topic: str) -> subprocess.CompletedProcess[str]:
    """Return what `tidelog verify` says of a topic in a broker's folder: batches, and what the indexes of segments claim."""
    command = [TIDELOG, "verify", str(node.data), topic]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def wrong_times(nodes: Iterable[Node], reader: Reader, partition: int) -> list[str]:
    """Return which replicas answer a search by time otherwise than a walk over all that a consumer has read of a partition.

    Searched are times of records throughout the log, and beyond its ends: by the `.timeindex` of each segment, where it has one.
    """
    rows = sorted((offset, at) for (number, offset), at in reader.times.items() if number == partition and at >= 0)
    times = sorted(at for _, at in rows)
    asked = {*times[:: max(1, len(times) // TIMES)], times[0] - 1, times[-1], times[-1] + 1} if times else set()
    found = []
    for node in nodes:
        log = tidelog.LogDir(node.data).log(reader.topic, partition)
        for at in sorted(asked):
            expected = next((offset for offset, time_ms in rows if time_ms >= at), None)
            answer = tidelog.find_offset(log, at)
            if (None if answer is None else answer.offset) != expected:
                found.append(f"{node}: {reader.topic}-{partition} has {answer} for {at}, and not {expected}")
    return found


def repeated(writer: JavaWriter, reader: Reader) -> list[str]:
    """Return the records of an idempotent producer that a consumer got more than once."""
    counts = Counter(value for value in reader.read.values() if value.startswith(f"{writer.name} ".encode()))
    return [f"{writer.name}: {value!r} is there {count} times" for value, count in counts.items() if count > 1]


def wrong(writers: Iterable[Writer | JavaWriter], readers: Iterable[Reader | JavaReader]) -> list[str]:
    """Return what is not as it was promised: acknowledged and not read, not in its order, another record in its place."""
    found = []
    for reader in readers:
        found += [f"{reader.name}: {one}" for one in reader.wrong[:5]]
        for writer in writers:
            lost = [place for place, value in writer.acknowledged.items() if reader.read.get(place) != value]
            found += [f"{reader.name}: {place} of the {writer.name} is {reader.read.get(place)!r}" for place in lost[:5]]
    return found


def differences(reader: JavaReader, other: Reader | JavaReader) -> list[str]:
    """Return what a consumer has read that another one has not read at that place."""
    found = [f"{reader.name}: {one}" for one in reader.wrong[:5]]
    other_values = [(place, value) for place, value in reader.read.items() if other.read.get(place) != value]
    return found + [
        f"{reader.name}: {place} is {value!r}, and not {other.read.get(place)!r}" for place, value in other_values[:5]
    ]


def wait_until_read(writers: Iterable[Writer | JavaWriter], readers: Iterable[Reader | JavaReader], partitions: int) -> None:
    """Wait until consumers have come as far as the last record that was acknowledged."""
    ends = [0] * partitions
    for writer in writers:
        for partition, offset in list(writer.acknowledged):
            ends[partition] = max(ends[partition], offset + 1)
    for reader in readers:
        wait_for_places(reader, ends)


def wait_for_places(reader: Reader | JavaReader, ends: list[int]) -> None:
    """Wait until a consumer has come as far as that. Raises what has ended it."""
    try:
        wait_until(
            lambda: reader.error is not None or all(at >= end for at, end in zip(reader.next, ends, strict=True)),
            "that",
            PATIENCE_S,
        )
    except TimeoutError:
        raise TimeoutError(f"{reader.name} has read up to {reader.next}, and not to {ends}") from None
    if reader.error is not None:
        raise reader.error
