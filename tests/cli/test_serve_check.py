"""`tidelog serve --check`: all errors at once, nothing written, and what the broker would do."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import KAFKA_3, Ran, run
from tests.kafka.java import free_port
from tidelog.clock import ManualClock
from tidelog.formats.names import CLEAN_SHUTDOWN_FILE
from tidelog.storage.folder.process_folders import place
from tidelog.storage.log_manager import LogManager

BAD = """
num.partitions=x
group.max.size=0
log.segment.bytes=1
log.retention.ms=-7
retention.ms=1
num.network.threads=3
create.topic.policy.class.name=com.example.Policy
no.such.property=1
"""


def check(*arguments: object) -> Ran:
    return run("serve", "--check", *arguments)


DEFAULT_PORT = "cannot listen on 127.0.0.1:9092: "
"""Another program of this machine may use the port that Tidelog listens on if no other is given."""


def all_errors(ran: Ran) -> list[str]:
    return [line.removeprefix("error: ") for line in ran.stdout.splitlines() if line.startswith("error: ")]


def errors(ran: Ran) -> list[str]:
    return [error for error in all_errors(ran) if not error.startswith(DEFAULT_PORT)]


def entries(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in [folder, *folder.rglob("*")]}


def test_every_error_is_shown_at_once(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(BAD)
    options = ("--property", "group.max", "--property", "num.partition=1", "--listen", "a:x", "--metrics", "0:")
    ran = check("--config", config, "--data", tmp_path / "new", *options)
    assert ran.exit_code == 1
    begins = [
        "--property 'group.max' is not",
        "num.partitions must be",
        "group.max.size is out",
        "log.segment.bytes (segment.bytes) is out",
    ]
    begins += [
        "log.retention.ms (retention.ms) is out",
        "--property: unknown property num.partition (did you",
        "not an address",
        "not an address",
    ]
    assert len(errors(ran)) == len(begins), ran.stdout
    assert [any(line.startswith(begin) for line in errors(ran)) for begin in begins] == [True] * len(begins), ran.stdout
    assert "ignoring unknown properties: no.such.property, retention.ms (did you mean log.retention.ms?)" in ran.stdout
    assert "create.topic.policy.class.name have no effect" in ran.stdout
    assert "ignoring properties that Tidelog does not use: num.network.threads" in ran.stdout
    assert ran.stdout.splitlines()[-1] == f"the broker would not start: {len(all_errors(ran))} errors"
    assert list(tmp_path.iterdir()) == [config]


def test_one_error_may_hide_others_and_it_says_so(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("process.roles=broker\nnode.id=1\nnum.partitions=x\n")
    ran = check("--config", config, "--data", tmp_path)
    assert ran.exit_code == 1
    assert any("controller.quorum" in error for error in errors(ran)), ran.stdout


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_it_would_do(tmp_path: Path, is_clean: bool) -> None:
    folder = tmp_path / "data"
    with tidelog.Broker(folder) as broker:
        broker.create_topic("orders", 3)
    if not is_clean:
        (folder / CLEAN_SHUTDOWN_FILE).unlink()
    before = entries(tmp_path)
    ran = check("--data", folder, "--listen", ":0", "--advertise", "broker.example:9092", "--metrics", "0")
    assert entries(tmp_path) == before
    recovers = "" if is_clean else " and recover them first: the last shutdown was not clean"
    assert ran.stdout.splitlines() == [
        f"would serve 3 partitions of 1 topics{recovers} ({folder})",
        "would listen on *:0 (PLAINTEXT), and send clients to broker.example:9092",
        "warning: any client that reaches *:0 has full access: set up TLS, users or an authorizer",
        "would serve metrics and health at http://127.0.0.1:0/metrics and /healthz",
        "the broker would start",
    ]
    assert ran.exit_code == 0


def test_a_new_folder(tmp_path: Path) -> None:
    ran = check("--data", tmp_path / "a" / "b", "--listen", "0")
    assert ran.stdout.startswith(f"would create the data folder ({tmp_path / 'a' / 'b'})\n")
    assert list(tmp_path.iterdir()) == []


def test_folders_that_cannot_be_served(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    ran = check("--data", tmp_path, "--listen", "0")
    assert ran.exit_code == 0, "the broker would put its files beside them"
    assert ran.stdout.startswith("warning: the folder holds other files")
    ran = check("--data", tmp_path, "--listen", "0", "--property", "zookeeper.connect=localhost:1", "--property", "broker.id=1")
    assert errors(ran)[0].startswith("the folder holds other files")
    shutil.copytree(KAFKA_3, tmp_path / "log")
    options = ("--data", tmp_path / "log", "--listen", "0")
    assert "belongs to a different node" in errors(check(*options, "--property", "node.id=4711"))[0]
    config = tmp_path / "server.properties"
    config.write_text("process.roles=broker\nnode.id=1\ncontroller.quorum.voters=9@localhost:9093\ncontroller.listener.names=C\n")
    ran = check("--config", config, "--data", tmp_path / "none", "--listen", "0")
    assert errors(ran) == [f"the data folder does not exist ({tmp_path / 'none'})"], ran.stdout
    assert errors(check("--data", tmp_path / "none", "--read-only")) == [f"the data folder does not exist ({tmp_path / 'none'})"]
    assert errors(check()) == ["there is no data folder: give --data, or a --config with log.dirs"]
    if os.geteuid():
        (tmp_path / "log").chmod(0o500)
        assert errors(check(*options)) == [f"this user may not write to the data folder ({tmp_path / 'log'})"]


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = check("--data", tmp_path / "data", "--listen", port, "--metrics", port)
    assert ran.exit_code == 1
    assert [error.partition(": ")[0] for error in errors(ran)] == [f"cannot listen on 127.0.0.1:{port}"] * 2


def test_before_a_restart(tmp_path: Path) -> None:
    """The running broker has the folder and the port; the next one would get them."""
    script = "import sys, tidelog; broker = tidelog.Broker(sys.argv[1]).start(); print(broker.port, flush=True); sys.stdin.read()"
    running = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "data"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with running:
        assert running.stdout is not None
        ran = check("--data", tmp_path / "data", "--listen", running.stdout.readline().strip())
        running.communicate("")
    assert ran.exit_code == 0, ran.stdout
    assert "note: a broker is running on this folder: ports are not checked" in ran.stdout.splitlines()


def test_several_processes(tmp_path: Path) -> None:
    """All ports and folders are checked; a folder of several brokers is not one broker's."""
    folder = tmp_path / "data"
    fine = check("--data", folder, "--listen", "0", "--processes", 2)
    assert (fine.exit_code, fine.stdout.count("would listen")) == (0, 2) and not folder.exists(), fine.stdout
    with LogManager(folder, ManualClock()) as manager:
        manager.create_topic("orders", 3)
    place(folder, ManualClock(), 2)
    before = entries(folder)
    assert (
        "would serve 3 partitions of 1 topics with 2 processes"
        in check("--data", folder, "--processes", 2, "--listen", "0").stdout
    )
    assert "move 1 partitions" in check("--data", folder, "--processes", 1, "--listen", "0").stdout
    with socket.socket() as taken:
        port = free_port() + 1  # The one below is free, and no other test's.
        taken.bind(("127.0.0.1", port))
        taken.listen()
        for begin in (("--check",), ()):
            ran = run("serve", *begin, "--data", folder, "--processes", 2, "--listen", port - 1)
            assert ran.exit_code == 1 and f"cannot listen on 127.0.0.1:{port}:" in ran.stdout + ran.stderr
    for listen, processes in (("65535", 2), ("0", 65)):
        assert check("--data", folder, "--processes", processes, "--listen", listen).exit_code
    two = ["--property", "listeners=A://127.0.0.1:4,B://127.0.0.1:5"]
    two += ["--property", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"]
    assert any("same port: found 5" in error for error in errors(check("--data", folder, "--processes", 2, *two)))
    assert errors(check("--data", folder, "--listen", "0")) == [
        f"{folder} is divided between several brokers: serve it with --processes."
    ]
    for ran in (check("--data", folder / "process1", "--listen", "0"), run("serve", "--data", folder / "process1")):
        assert ran.exit_code and f"one broker's part of {folder}" in ran.stdout + ran.stderr
    assert entries(folder) == before
    (folder / "process2").rename(tmp_path / "elsewhere")
    (error,) = errors(check("--data", folder, "--processes", 2, "--listen", "0"))
    assert error.startswith("a broker's log directory is missing")
