"""Open files and room on the disk run out, and come back: what was acknowledged stays, and partitions return by themselves."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import StartBroker
from tests.broker.produce_helpers import produce_request
from tests.broker.raw import RawClient
from tests.patience import PATIENCE_S
from tidelog.model import TopicPartition
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.records import Record
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

ROOT = Path(__file__).resolve().parents[2]


def batch(value: bytes = b"value", producer: Producer | None = None) -> bytes:
    records = [Record(0, time.time_ns() // 1_000_000, CREATE_TIME, b"key", value)]  # Old producers are forgotten by a start.
    return bytes(build_batch_v2(records) if producer is None else build_batch_v2(records, producer=producer))


def produce(client: RawClient, topic: str, partitions: range, data: bytes) -> dict[int, tuple[int, int]]:
    """Write to each partition; return its error code and the offset."""
    request = produce_request([(topic, partition, data) for partition in partitions])
    answers = client.ask(request, 9).responses[0].partition_responses
    return {one.index: (one.error_code, one.base_offset) for one in answers}


def codes(answers: dict[int, tuple[int, int]]) -> set[int]:
    return {code for code, _ in answers.values()}


@contextmanager
def served(folder: Path, open_files: int, *options: str) -> Iterator[tuple[str, int]]:
    """Serve a folder in a process that may have so many files open; yields where."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

    command = [sys.executable, "-m", "tidelog", "serve", "--data", str(folder), "--listen", "127.0.0.1:0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, preexec_fn=limited)  # noqa: PLW1509
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        host, port = line.removeprefix("bootstrap.servers=").split(":")
        yield host, int(port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


def eventually(attempt: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + timeout_s
    while not attempt():
        assert time.monotonic() < end
        time.sleep(0.05)


class TestOpenFiles:
    @pytest.mark.parametrize(("open_files", "partitions", "idle"), [(120, 24, 80), (110, 60, 40)])
    def test_idle_connections_take_no_files_from_logs(self, tmp_path: Path, open_files: int, partitions: int, idle: int) -> None:
        """Every partition takes records, in the second case more of them than files may be open; newcomers are served as well."""
        every = range(partitions)
        with served(tmp_path / "data", open_files) as address, ExitStack() as stack:
            first = stack.enter_context(RawClient(address))
            created = first.ask(CreateTopicsRequest([CreatableTopic("t", partitions, 1)], 10_000), 5)
            assert created.topics[0].error_code == 0
            for _ in range(idle):
                stack.enter_context(socket.create_connection(address, timeout=PATIENCE_S))
            for offset in range(3):
                assert produce(first, "t", every, batch()) == dict.fromkeys(every, (0, offset))

            def newcomer_is_served() -> bool:
                with RawClient(address) as client:
                    try:
                        return codes(produce(client, "t", every, batch(b"x" * 5000))) == {0}
                    except (ConnectionError, AssertionError):
                        return False  # Refused: those that are connected were not idle for long enough.

            eventually(newcomer_is_served)
            assert produce(first, "t", every, batch()) == dict.fromkeys(every, (0, 4))


def refuse(patch: pytest.MonkeyPatch, code: int, folder: Path, calls: tuple[str, ...]) -> None:
    """Have `os` functions fail for files below `folder` that are written."""
    for name in calls:
        original = getattr(os, name)

        def refusing(target: Any, *arguments: Any, original: Any = original, name: str = name, **keywords: Any) -> Any:
            path = Path(f"/proc/self/fd/{target}").readlink() if isinstance(target, int) else Path(target)
            if name == "open" and not arguments[0] & os.O_ACCMODE:
                return original(target, *arguments, **keywords)
            if folder in path.parents:
                raise OSError(code, os.strerror(code), str(path))
            return original(target, *arguments, **keywords)

        patch.setattr(os, name, refusing)


class TestTheDisk:
    @pytest.mark.parametrize(
        ("code", "calls"),
        [(errno.ENOSPC, ("pwrite",)), (errno.EIO, ("pwrite", "ftruncate", "fsync")), (errno.EROFS, ("open", "pwrite"))],
    )
    def test_partitions_come_back(
        self, start_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int, calls: tuple[str, ...]
    ) -> None:
        """Once the cause is gone, by themselves: with what was acknowledged, and with what producers had sent."""
        broker = start_broker()
        broker.create_topic("t", 4)
        with broker.client() as client:
            for sequence in range(3):
                answers = produce(client, "t", range(4), batch(producer=Producer(7, 0, sequence)))
                assert answers == dict.fromkeys(range(4), (0, sequence))
            logs = broker.on_loop(lambda: list(broker.node.manager.logs.values()))
            eventually(lambda: not any(log.leader_epochs.is_unwritten for log in logs))
            with pytest.MonkeyPatch.context() as patch:
                refuse(patch, code, broker.data_dir, calls)
                refused = produce(client, "t", range(3), batch(producer=Producer(7, 0, 3)))
                assert codes(refused) == {ErrorCode.KAFKA_STORAGE_ERROR}
                assert len(broker.on_loop(broker.node.manager.offline_partitions)) == 3
                assert fetched(client, "t", 0) == [0, 1, 2], "what was acknowledged is read"
            eventually(lambda: not broker.on_loop(broker.node.manager.offline_partitions))
            # The producer goes on where it was, and says once more what may have come through.
            assert produce(client, "t", range(4), batch(producer=Producer(7, 0, 3))) == dict.fromkeys(range(4), (0, 3))
            assert produce(client, "t", range(4), batch(producer=Producer(7, 0, 3))) == dict.fromkeys(range(4), (0, 3))
            gap = produce(client, "t", range(4), batch(producer=Producer(7, 0, 9)))
            assert codes(gap) == {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
            for partition in range(4):
                assert fetched(client, "t", partition) == [0, 1, 2, 3]
            offline = broker.on_loop(lambda: broker.node.manager.offline)
            assert (offline.went_offline, offline.came_back) == (3, 3)
        for partition in range(3):
            assert f"t-{partition}: offline after an error" in caplog.text
            assert f"t-{partition} is online again, with offsets 0 to 3" in caplog.text
        broker.stop()
        assert broker.is_clean

    def test_a_disk_that_lost_what_was_acknowledged(self, start_broker: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
        """It is said, and the leader's epoch is a new one: consumers notice."""
        broker = start_broker()
        broker.create_topic("t")
        with broker.client() as client:
            for _ in range(3):
                produce(client, "t", range(1), batch())
            epoch = broker.node.leadership.epoch_of(TopicPartition("t", 0))
            with pytest.MonkeyPatch.context() as patch:
                refuse(patch, errno.EIO, broker.data_dir, ("pwrite",))
                produce(client, "t", range(1), batch())
                path = broker.data_dir / "t-0" / "00000000000000000000.log"
                os.truncate(path, path.stat().st_size - 1)
            eventually(lambda: not broker.on_loop(broker.node.manager.offline_partitions))
            assert "has lost offsets 2 to 2, which were acknowledged" in caplog.text
            assert broker.node.leadership.epoch_of(TopicPartition("t", 0)) == epoch + 1
            assert produce(client, "t", range(1), batch()) == {0: (0, 2)}

    def test_topics_that_cannot_be_deleted_or_made_for_now(self, start_broker: StartBroker) -> None:
        """A deletion goes on by itself, an attempt to create leaves nothing: their names are free again, without a restart."""
        broker = start_broker()
        broker.create_topic("old", 2)
        broker.create_topic("other")
        metadata = broker.data_dir / "__cluster_metadata-0"
        with broker.client() as client, pytest.MonkeyPatch.context() as patch:
            make = os.mkdir

            def mkdir(path: Any, *arguments: Any) -> None:
                """The disk is full once the metadata has the topic."""
                if Path(path).name.startswith("new-"):
                    refuse(patch, errno.ENOSPC, metadata, ("pwrite",))
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
                make(path, *arguments)

            patch.setattr(os, "mkdir", mkdir)
            assert create(client, "new") == ErrorCode.KAFKA_STORAGE_ERROR
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="old")])
            assert client.ask(request, 6).responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            unfinished = broker.on_loop(broker.node.manager.unfinished_deletions)
            assert unfinished == ["new", "old"]
            assert create(client, "new") == create(client, "old") == ErrorCode.TOPIC_ALREADY_EXISTS
        eventually(lambda: not broker.on_loop(broker.node.manager.unfinished_deletions))
        with broker.client() as client:
            assert create(client, "new") == ErrorCode.NONE
            assert produce(client, "new", range(1), batch()) == {0: (0, 0)}
        broker.stop()
        broker.start()
        assert [view.name for view in broker.on_loop(broker.node.topics.all)] == ["new", "other"]
        with broker.client() as client:
            assert create(client, "old") == ErrorCode.NONE
            assert produce(client, "old", range(1), batch()) == {0: (0, 0)}

    def test_offline_at_the_start(self, start_broker: StartBroker, tmp_path: Path) -> None:
        broker = start_broker()
        broker.create_topic("t")
        with broker.client() as client:
            produce(client, "t", range(1), batch())
        broker.stop()
        folder = broker.data_dir / "t-0"
        with pytest.MonkeyPatch.context() as patch:
            original = os.scandir

            def scandir(path: Any) -> Any:
                if Path(path) == folder:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return original(path)

            patch.setattr(os, "scandir", scandir)
            broker.start()
            assert list(broker.on_loop(broker.node.manager.offline_partitions)) == [("t", 0)]
        eventually(lambda: not broker.on_loop(broker.node.manager.offline_partitions))
        with broker.client() as client:
            assert produce(client, "t", range(1), batch()) == {0: (0, 1)}


def create(client: RawClient, topic: str) -> int:
    answer = client.ask(CreateTopicsRequest([CreatableTopic(topic, 1, 1)], 10_000), 5)
    return int(answer.topics[0].error_code)


def fetched(client: RawClient, topic: str, partition: int) -> list[int]:
    """Return the offsets of a partition's batches, of one record each; a fetch ends with a segment."""
    offsets: list[int] = []
    while True:
        wanted = FetchPartition(partition=partition, fetch_offset=len(offsets), partition_max_bytes=10_000_000)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[wanted])])
        answer = client.ask(request, 11).responses[0].partitions[0]
        assert answer.error_code == 0
        data = bytes(answer.records or b"")
        if not data:
            return offsets
        while data:
            offsets.append(int.from_bytes(data[:8], "big"))
            data = data[12 + int.from_bytes(data[8:12], "big") :]


def _can_mount() -> bool:
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([unshare, "-rm", "true"], capture_output=True, check=False).returncode == 0


FULL_DISK = """
    import os, sys, time
    from pathlib import Path
    import tidelog
    from tests.broker.raw import RawClient
    from tests.broker import topics_now
    from tests.broker.test_scarce import batch, codes, fetched, produce
    disk = Path(sys.argv[1])
    with tidelog.Broker(disk / "data", num_partitions=4, **{"segment.index.bytes": 4096}) as broker:
        with RawClient(("127.0.0.1", broker.port)) as client:
            broker.call(lambda running: topics_now.create(running.node, "t", 4, {}))
            acknowledged, refused = [0] * 4, set()
            while len(refused) < 4:
                for partition, (code, offset) in produce(client, "t", range(4), batch(b"x" * 20_000)).items():
                    if code:
                        assert code == 56, code
                        refused.add(partition)
                    else:
                        assert offset == acknowledged[partition]
                        acknowledged[partition] += 1
            os.unlink(disk / "ballast")
            end = time.monotonic() + 120
            back = set()
            while len(back) < 4:
                assert time.monotonic() < end, broker.call(lambda running: running.node.manager.offline_partitions())
                for partition in set(range(4)) - back:
                    code, offset = produce(client, "t", range(partition, partition + 1), batch())[partition]
                    if not code:
                        assert offset == acknowledged[partition], (offset, acknowledged)
                        acknowledged[partition] += 1
                        back.add(partition)
                time.sleep(0.02)
            for partition in range(4):
                assert fetched(client, "t", partition) == list(range(acknowledged[partition]))
            assert min(acknowledged) > 10
    print("all of them")
"""


@pytest.mark.skipif(not _can_mount(), reason="needs a name space of mounts of its own")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A tmpfs of 8 MB, in a name space of its own: full, emptied, and all partitions take records again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(FULL_DISK))
    fill = f"mount -t tmpfs -o size=8m tmpfs {disk} && head -c 4000000 /dev/zero > {disk}/ballast"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = ["unshare", "-rm", "sh", "-c", f"{fill} && exec {sys.executable} {script} {disk}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False, timeout=PATIENCE_S)
    if "mount:" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stdout) == (0, "all of them\n"), done.stderr


@pytest.mark.skipif(not _can_mount(), reason="needs a name space of mounts of its own")
def test_a_disk_that_is_full_again_and_again_under_every_kind_of_write(tmp_path: Path) -> None:
    """See `full_disk`."""
    disk = tmp_path / "disk"
    disk.mkdir()
    run = f"mount -t tmpfs -o size=6m tmpfs {disk} && exec {sys.executable} -m tests.broker.full_disk {disk}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", run], capture_output=True, text=True, cwd=ROOT, check=False, timeout=200)
    if "mount:" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr[-3000:]
