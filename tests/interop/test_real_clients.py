"""Every client reads what every client wrote: Java's of five releases, librdkafka, kafka-python, aiokafka.

The topics are `tests/kafka/client_matrix.py`'s, one whose format changed while it was written, and those that Apache Kafka 2.4.1
and 3.9.1 left in `tests/golden`. One broker serves all of them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest

from tests.interop.gate import first_of
from tests.interop.peers import AGAINST, Peer, served
from tests.kafka.client_matrix import Other, Written, cases, check_reader, check_sent, write_all
from tests.kafka.clients import NewRow, Row, alter_topic, produce
from tests.kafka.golden_rows import golden, has_transactions, log_folder, rows
from tests.kafka.java_clients import JAVA_CLIENTS, JavaClient
from tests.kafka.real_clients import PYTHON_CLIENTS, AioKafka, Client

CLIENTS: tuple[Client, ...] = PYTHON_CLIENTS + JAVA_CLIENTS
NOW_MS = int(time.time() * 1000)
READERS = [
    *PYTHON_CLIENTS,
    JAVA_CLIENTS[0],
    *first_of(
        JAVA_CLIENTS[-1],
        *JAVA_CLIENTS[1:-1],
        why="releases between the oldest and the newest, which write here",
    ),
]
"""All of them write."""
FORMATS = (("0.9.0", 0), ("0.10.2", 1), ("2.0", 2), ("0.10.0", 1), ("2.4", 2))
GOLDEN = {
    "2.4.1": (
        "v0-none-ct",
        "v0-gzip-lat",
        "v1-snappy-ct",
        "v1-lz4-lat",
        "migrated-v0-v1-v2",
        "raised-v0-v2-lz4",
        "lowered-v1-v0",
    ),
    "3.9.1": ("v2-lz4-ct", "v2-gzip-lat", "deleted-prefix", "compacted", "idempotent", "transactions"),
}
"""The topics of 2.4.1 are served as `old-...`: both releases have some of the same names."""


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    folder = tmp_path_factory.mktemp("served")
    if AGAINST == "tidelog":
        shutil.copytree(log_folder("3.9.1"), folder / "data")
        for topic in GOLDEN["2.4.1"]:
            shutil.copytree(log_folder("2.4.1") / f"{topic}-0", folder / "data" / f"old-{topic}-0")
    with served(folder) as peer:
        yield peer


@pytest.fixture(scope="module")
def written(peer: Peer) -> list[Written]:
    picked = cases(CLIENTS)
    peer.create_topics({case.topic: case.config() for case in picked})
    return write_all(peer.bootstrap, picked)


@pytest.fixture(scope="module")
def others(peer: Peer) -> dict[str, Other]:
    others = {"formats": Other(change_formats(peer.bootstrap, peer))}
    for release, topics in GOLDEN.items() if AGAINST == "tidelog" else ():
        for topic in topics:
            (partition,) = golden(release)[topic]
            committed = rows(partition, committed=True) if has_transactions([partition]) else None
            others[f"old-{topic}" if release == "2.4.1" else topic] = Other(rows(partition), committed)
    return others


def change_formats(bootstrap: str, peer: Peer) -> list[Row]:
    """A topic whose format is raised and lowered while it is written; its records as they are stored."""
    peer.create_topics({"formats": {"segment.bytes": "1000", "message.format.version": "0.9.0"}})
    stored: list[Row] = []
    for number, (release, message_format) in enumerate(FORMATS):
        alter_topic(bootstrap, "formats", {"message.format.version": release})
        if AGAINST != "tidelog":
            time.sleep(1)  # ZooKeeper says the broker when it likes
        headers = (("h", b"1"),) if message_format == 2 else ()
        new = [NewRow(b"k%d" % i, b"v%d" % i, NOW_MS + 100 * number + i, headers) for i in range(6)]
        produce(bootstrap, "formats", new, batch_records=3, compression_type=("none", "gzip")[number % 2])
        for row in new:
            timestamp, kind = (row.timestamp, 1) if message_format else (-1, 0)
            stored.append(Row(len(stored), timestamp, kind, row.key, row.value, headers))
    return stored


def can_read(reader: Client, topic: str) -> bool:
    if isinstance(reader, AioKafka) and topic.startswith(("formats", "old-migrated", "old-raised", "old-lowered")):
        return False  # it misreads a fetch of several formats, from Apache Kafka 2.4.1 too
    if topic == "transactions" and reader.message_format < 2:
        return False  # see below
    if topic == "idempotent" and "zstd" not in reader.codecs:
        return False  # most of it is in zstd
    return "lz4" not in topic or "lz4" in (reader.codecs if reader.message_format else reader.codecs_v0)


def test_writers_are_told_offsets_and_times(written: list[Written]) -> None:
    for each in written:
        check_sent(each)


@pytest.mark.parametrize("reader", READERS, ids=str)
def test_every_client_reads_and_finds_the_same(
    peer: Peer, written: list[Written], others: dict[str, Other], reader: Client
) -> None:
    readable = {topic: other for topic, other in others.items() if can_read(reader, topic)}
    check_reader(peer.bootstrap, written, reader, readable)


@pytest.mark.skipif(AGAINST != "tidelog", reason="needs the folders of tests/golden")
@pytest.mark.parametrize(
    ("release", "topic", "records", "says"),
    [
        ("0.10.2.2", "transactions", 189, "Received a non-empty fetch response from the server, but no complete records"),
        ("0.11.0.3", "idempotent", 0, "Unknown compression type id: 4"),
    ],
)
def test_old_clients_before_what_they_do_not_know(peer: Peer, release: str, topic: str, records: int, says: str) -> None:
    """What they say before Apache Kafka 3.9.1, too: of a marker at the end, which is nothing in v1; of a zstd batch."""
    (answers,) = JavaClient(release).run(peer.bootstrap, [f"consume\t\t{topic}:0"])
    assert [fields[0] for fields in answers] == ["record"] * records + ["error"]
    assert says in answers[-1][-1]
