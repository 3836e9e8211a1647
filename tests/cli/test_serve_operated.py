"""`tidelog serve` under a service manager: systemd's notifications, health, and JSON on every line of its log."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
import urllib.request
from pathlib import Path

import pytest

from tests.cli.conftest import run, run_process
from tests.cli.test_serve import serving
from tests.patience import PATIENCE_S


def lines(log: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in log.splitlines()]


def test_from_its_start_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        received: list[bytes] = []
        thrice = threading.Event()

        def receive() -> None:  # The socket holds few messages, and what does not fit is lost.
            while not received or not received[-1].startswith(b"STOPPING"):
                received.append(manager.recv(1000))
                if received.count(b"WATCHDOG=1") == 3:
                    thrice.set()

        receiving = threading.Thread(target=receive, daemon=True)
        receiving.start()
        with serving(tmp_path / "data", "--listen", "0", "--metrics", "0", "--log-format", "json") as one:
            url = re.search(r"metrics at (http://[\d.:]+)/metrics", one.log)
            assert url is not None
            for path in ("", "/live", "/ready"):
                with urllib.request.urlopen(f"{url[1]}/healthz{path}", timeout=PATIENCE_S) as answer:
                    assert (answer.status, answer.read()) == (200, b"ok\n")
            with socket.create_connection(("127.0.0.1", one.port), timeout=PATIENCE_S) as client:
                client.sendall(b'GET /"}\n{"level": "info"} HTTP/1.1\r\n\r\n')
                assert client.recv(1) == b""
            assert thrice.wait(PATIENCE_S), received
            one.signal(signal.SIGTERM)
            assert one.wait() == 0
        receiving.join(PATIENCE_S)
    assert received[0].decode() == f"READY=1\nSTATUS=serving at {one.bootstrap}"
    assert received[-1] == b"STOPPING=1\nSTATUS=shutting down"
    found = lines(one.log)
    assert {tuple(line) for line in found} == {("time", "level", "area", "message")}
    assert {"serve", "broker"} <= {line["area"] for line in found}
    assert found[-1]["message"].startswith("ended cleanly")


def test_an_error_that_ends_it_is_an_object_too(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    ran = run_process("serve", "--data", tmp_path / "notes.txt", "--listen", "0", "--log-format", "json")
    assert ran.exit_code == 1
    *_, last = lines(ran.stderr)
    assert (last["level"], last["area"]) == ("error", "serve")
    assert last["message"].startswith("cannot create the data folder")
    ran = run_process("serve", "--data", tmp_path / "data", "--metrics", "x:y", "--log-format", "json")
    assert "not an address" in lines(ran.stderr)[0]["message"]


@pytest.mark.parametrize("form", [["--log-format", "json"], ["--log-format=json"]])
@pytest.mark.parametrize(
    ("options", "exit_code", "error"),
    [
        ([], 2, "there is no data folder: give --data, or a --config with log.dirs."),
        (["--nope"], 2, "no such option '--nope' (did you mean --property?)."),
        (["--listen"], 2, "option '--listen' requires an argument: "),
        (["--property", "foo"], 2, "--property 'foo' is not NAME=VALUE."),
        (["--property", "log.segment.bytes=abc"], 1, "log.segment.bytes (segment.bytes) must be a whole number: found 'abc'"),
        (["--config", "missing"], 1, "cannot read the properties: No such file or directory (missing)"),
    ],
)
def test_errors_before_the_start_are_objects_too(form: list[str], options: list[str], exit_code: int, error: str) -> None:
    ran = run("serve", *options, *form)
    assert ran.exit_code == exit_code
    first, *others = lines(ran.stderr)
    assert (first["level"], first["area"]) == ("error", "serve")
    assert first["message"].startswith(error)
    assert [one["message"] for one in others] == (["Try 'tidelog serve --help'."] if exit_code == 2 else [])
    assert run("serve").stderr.startswith("tidelog: ")
