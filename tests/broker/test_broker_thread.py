"""The end of a `Broker`, whoever asks: its own thread, several threads, a signal, a program's end, a process forked off."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tidelog.broker import broker_thread
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.formats.names import CLEAN_SHUTDOWN_FILE
from tidelog.testing import Broker


def test_not_on_its_own_thread() -> None:
    with Broker() as broker:
        with pytest.raises(InvalidArgumentError, match="its own thread"):
            broker.call(lambda running: broker.stop())
        assert broker.is_running
        assert broker.produce("t", b"x") == 0


def test_by_several_threads_at_once() -> None:
    """Each returns when it is over, and knows how."""
    broker = Broker().start()
    broker.produce("t", b"x")
    with ThreadPoolExecutor(4) as threads:
        held = threading.Event()
        threads.submit(broker.call, lambda running: held.wait(PATIENCE_S))
        stops = [threads.submit(broker.stop) for _ in range(3)]
        held.set()
        results = [stop.result() for stop in stops]
    assert True in results
    assert not broker.is_running
    assert not broker.stop()
    with broker:
        assert [record.value for record in broker.records("t")] == [b"x"]


def test_a_call_that_comes_too_late(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    serving = broker._serving
    assert serving is not None
    broker.stop()
    with pytest.raises(InvalidArgumentError, match="not running"):
        serving.call(lambda running: None)


def test_two_on_one_folder(tmp_path: Path) -> None:
    with Broker(tmp_path) as first:
        second = Broker(tmp_path)
        with pytest.raises(StorageError, match="is using this folder"):
            second.start()
        assert not second.stop()
        assert first.produce("t", b"x") == 0
    with second:
        assert len(second.records("t")) == 1


def test_a_disk_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for, not forever; and again, if somebody wants that."""
    answers, real = threading.Event(), os.fsync

    def fsync(fd: int) -> None:
        assert answers.wait(PATIENCE_S)
        real(fd)

    broker = Broker(tmp_path).start()
    broker.produce("t", b"x")
    monkeypatch.setattr(os, "fsync", fsync)
    with monkeypatch.context() as patch:
        patch.setattr(broker_thread, "STALLED_S", 0.1)
        patch.setattr(broker_thread, "WATCH_S", 0.05)
        with pytest.raises(StorageError, match="has not progressed"):
            broker.stop()
        assert broker.is_running
    answers.set()
    assert broker.stop()
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


def ran(program: str, folder: Path, warnings: str = "error") -> None:
    """Run a program that prints nothing but "well", on an empty folder."""
    command = [sys.executable, "-W", warnings, "-c", textwrap.dedent(program), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "well\n", "")


def test_in_a_signals_handler(tmp_path: Path) -> None:
    ran(
        """
        import signal, sys, tidelog
        from tidelog.errors import InvalidArgumentError, StorageError
        broker = tidelog.Broker(sys.argv[1]).start()
        ended = []
        signal.signal(signal.SIGALRM, lambda *_: ended.append(broker.stop()))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            while True:
                broker.produce("t", b"x")
        except InvalidArgumentError as error:
            assert "not running" in str(error)
        except StorageError as error:  # It was the one that made the topic.
            assert "has stopped" in str(error)
        assert ended == [True]
        print("well")
        """,
        tmp_path,
    )


def test_when_the_program_ends(tmp_path: Path) -> None:
    ran(
        """
        import atexit, sys, tidelog
        broker = tidelog.Broker(sys.argv[1]).start()
        broker.produce("t", b"x")
        atexit.register(broker.stop)
        print("well")
        """,
        tmp_path,
    )
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


def test_a_process_forked_off_has_no_broker(tmp_path: Path) -> None:
    """Neither its end nor its life touches the folder, the port or the clients of the real one."""
    ran(
        """
        import os, socket, sys, tidelog
        from tidelog.errors import InvalidArgumentError
        broker = tidelog.Broker().start()
        broker.produce("t", b"x")
        client = socket.create_connection(("127.0.0.1", broker.port))
        client.sendall(bytes.fromhex("0000000a00120000000000 07ffff".replace(" ", "")))
        assert client.recv(1)
        left, right = os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            assert not broker.is_running and not broker.stop()
            try:
                broker.call(lambda running: None)
            except InvalidArgumentError:
                os.write(right[1], b"well")
            os.read(left[0], 1)
            sys.exit(0)
        assert os.read(right[0], 9) == b"well"
        assert broker.produce("t", b"y") == 1
        folder, port = broker.data_dir, broker.port
        broker.stop()
        client.settimeout(60)
        while client.recv(65536):
            pass
        try:
            socket.create_connection(("127.0.0.1", port), timeout=60)
            raise AssertionError("somebody listens")
        except ConnectionRefusedError:
            pass
        os.write(left[1], b"x")
        assert os.waitpid(child, 0)[1] == 0
        assert folder.exists()
        broker.start()
        assert len(broker.records("t")) == 2
        broker.stop()
        broker.__exit__(None, None, None)
        assert not folder.exists()
        print("well")
        """,
        tmp_path,
        warnings="ignore",  # The copy leaves what it has of the loop to its end.
    )
