"""A folder that is served read-only: no byte of it changes, everything in it is found, and what would change it is refused."""

from __future__ import annotations

import hashlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.broker.raw import RawClient
from tests.broker.test_scarce import batch, codes, fetched, produce
from tests.patience import PATIENCE_S
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError
from tidelog.testing import Broker
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

ROOT = Path(__file__).resolve().parents[2]
NOW_MS = 1_700_000_000_000


def state(folder: Path) -> dict[str, Any]:
    """Every file and folder below `folder`: content, size, mode, modification time."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        found[str(path.relative_to(folder))] = (content, status.st_size, status.st_mode, status.st_mtime_ns)
    found["."] = (None, 0, folder.stat().st_mode, folder.stat().st_mtime_ns)
    return found


def written(folder: Path) -> None:
    """A folder with rolled segments, a compacted topic, a group's offsets, an open transaction's worth of everything."""
    with Broker(folder, clock=ManualClock(NOW_MS), offsets_topic_num_partitions=2) as broker:
        broker.create_topic("t", 2, segment_bytes=2000, retention_ms=1000)
        broker.create_topic("compacted", 1, cleanup_policy="compact", segment_bytes=1000)
        for number in range(30):
            broker.produce("t", b"%d" % number * 50, partition=number % 2, timestamp_ms=NOW_MS + number)
            broker.produce("compacted", b"x" * 100, key=b"same", timestamp_ms=NOW_MS + number)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0})
        try:
            consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
        finally:
            consumer.close()


def as_left(folder: Path) -> None:
    """Nothing is done to it: a clean end."""


def killed(folder: Path) -> None:
    (folder / ".kafka_cleanshutdown").unlink()


def torn(folder: Path) -> None:
    """The last batch is half there, an index is gone, another is garbage, work of a killed process lies about."""
    killed(folder)
    (folder / "recovery-point-offset-checkpoint").unlink()
    logs = sorted((folder / "t-0").glob("*.log"))
    with logs[-1].open("ab") as file:
        file.write(batch()[:40])
    logs[0].with_suffix(".index").unlink()
    logs[1].with_suffix(".timeindex").write_bytes(b"\xff" * 24)
    (folder / "t-0" / f"{0:020}.log.deleted").write_bytes(b"old")
    (folder / "t-0" / f"{0:020}.log.cleaned").write_bytes(b"half")
    (folder / "u-0.0123456789abcdef0123456789abcdef-delete").mkdir()


@pytest.mark.parametrize("damage", [as_left, killed, torn])
def test_no_byte_changes(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    folder = tmp_path / "data"
    written(folder)
    damage(folder)
    for path in [*folder.rglob("*"), folder]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = state(folder)
    clock = ManualClock(NOW_MS)
    with Broker(folder, clock=clock, read_only=True) as broker:
        assert broker.call(lambda running: running.node.manager.offline_partitions()) == {}
        for days in (0, 400):
            clock.advance(days * 24 * 3_600_000)
            with RawClient(("127.0.0.1", broker.port)) as client:
                asked = [ListOffsetsPartition(partition_index=0, timestamp=NOW_MS + 14)]
                found = client.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic("t", asked)]), 7)
                assert found.topics[0].partitions[0].offset == 7
                assert fetched(client, "t", 0) == fetched(client, "t", 1) == list(range(15))
                assert len(fetched(client, "compacted", 0)) == 30
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.auto.commit": False, "log_level": 0}
        )
        try:
            assert consumer.committed([TopicPartition("t", 0)], PATIENCE_S)[0].offset == 7
            consumer.subscribe(["t"])
            message = consumer.consume(1, PATIENCE_S)[0]
            assert (message.error(), message.partition() in (0, 1)) == (None, True)
            with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
                consumer.commit(message=message, asynchronous=False)
        finally:
            consumer.close()
        view = broker.call(lambda running: running.node.manager.directory)
        # For root no mode matters, and tests may run as root.
        own = [path for path in [view, *view.rglob("*")] if not path.is_symlink()]
        assert [path for path in own if not path.stat().st_mode & stat.S_IWUSR] == []
    assert state(folder) == before
    assert not view.exists()


def test_what_would_change_it_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    written(folder)
    before = state(folder)
    with Broker(folder, read_only=True) as broker, RawClient(("127.0.0.1", broker.port)) as client:
        assert codes(produce(client, "t", range(2), batch())) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        # One partition: the request that is answered without a message in between.
        assert codes(produce(client, "t", range(1), batch())) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert client.ask(CreateTopicsRequest([CreatableTopic("new", 1, 1)]), 5).topics[0].error_code == 31
        assert client.ask(DeleteTopicsRequest(topic_names=["t"]), 5).responses[0].error_code == 29
        assert client.ask(InitProducerIdRequest(None, 1000), 3).error_code == 31
        assert client.ask(InitProducerIdRequest("me", 1000), 3).error_code == 53
        assert client.ask(EndTxnRequest("me", 1, 0, True), 3).error_code == 53
        assert client.ask(DeleteGroupsRequest(["g"]), 2).results[0].error_code == 30
        with pytest.raises(InvalidArgumentError, match="read-only"):
            broker.produce("t", b"x")
        assert len(broker.records("t")) == 30
    assert state(folder) == before


def test_beside_the_one_who_writes(tmp_path: Path) -> None:
    """No lock is taken: another broker may own the folder, and go on. What is served is the folder as it was."""
    with Broker(tmp_path / "data") as owner:
        owner.produce("t", [b"a", b"b"])
        with Broker(owner.data_dir, read_only=True) as broker:
            owner.produce("t", b"c")
            assert [record.value for record in broker.records("t")] == [b"a", b"b"]
        assert [record.value for record in owner.records("t")] == [b"a", b"b", b"c"]


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no folder to serve"):
        Broker(tmp_path / "none", read_only=True).start()
    with pytest.raises(InvalidArgumentError, match="existing folder"):
        Broker(read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    written(folder)
    before = state(folder)
    command = [sys.executable, "-m", "tidelog", "serve", "--data", str(folder), "--listen", "127.0.0.1:0", "--read-only"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    port = int(process.stdout.readline().rsplit(":", 1)[1])
    with RawClient(("127.0.0.1", port)) as client:
        assert fetched(client, "t", 0) == list(range(15))
    os.kill(process.pid, signal.SIGTERM)
    _, log = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "is served read-only, as it is now" in log
    assert state(folder) == before
