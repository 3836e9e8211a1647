"""Who gets an answer, tried on a real socket: wrong names, other sites, no token, other methods, paths out of the page."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import KAFKA_3, run, start
from tests.patience import PATIENCE_S


class Running(NamedTuple):
    process: subprocess.Popen[bytes]
    port: int
    token: str


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    process = start("ui", KAFKA_3)
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline().decode()
    match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{32})\n", line)
    assert match is not None, line
    yield Running(process, int(match[1]), match[2])
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (130, b"", b"tidelog: interrupted\n")


def send(server: Running, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as sent:
        sent.sendall(data)
        found = b""
        while piece := sent.recv(65536):
            found += piece
    return found


def ask(server: Running, path: str, *fields: str, method: str = "GET", host: str | None = None) -> Response:
    host = f"127.0.0.1:{server.port}" if host is None else host
    lines = [f"{method} {path} HTTP/1.1", *([f"Host: {host}"] if host else []), *fields, "Connection: close", "", ""]
    head, _, body = send(server, "\r\n".join(lines).encode("latin-1")).partition(b"\r\n\r\n")
    first, *others = head.decode("latin-1").split("\r\n")
    return Response(int(first.split()[1]), dict(one.lower().split(": ", 1) for one in others), body)


def bearer(server: Running) -> str:
    return f"Authorization: Bearer {server.token}"


def test_the_token_becomes_a_cookie(server: Running) -> None:
    found = ask(server, f"/?token={server.token}&view=x", "Sec-Fetch-Site: none")
    assert (found.status, found.headers["location"], found.body) == (303, "/?view=x", b"")
    cookie, *attributes = found.headers["set-cookie"].split("; ")
    assert attributes == ["path=/", "httponly", "samesite=strict"] and server.token.lower() not in cookie
    # The headers were made lower case for the test; the cookie itself is not.
    raw = send(
        server, f"GET /?token={server.token} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n".encode()
    )
    given = re.search(rb"set-cookie: ([^;]+);", raw)
    assert given is not None
    shown = ask(server, "/api/sources", f"Cookie: other=1; {given[1].decode()}", "Sec-Fetch-Site: same-origin")
    assert shown.status == 200 and b'"kind":"folder"' in shown.body
    assert ask(server, "/", f"Cookie: {given[1].decode()}").body.lstrip().lower().startswith(b"<!doctype html>")


@pytest.mark.parametrize(
    "path", ["/", "/api/sources", "/index.html", "/api/tail?topic=v2-none-ct", "/?token=", "/?token=x&token=y"]
)
def test_without_the_token_there_is_nothing(server: Running, path: str) -> None:
    for fields in ((), ("Cookie: tidelog=1",), (f"Cookie: tidelog-{server.port}={server.token}",), ("Authorization: Bearer x",)):
        found = ask(server, path, *fields)
        assert found.status == 403 and b"Open the address" in found.body, fields
    assert ask(server, f"/api/sources?token={server.token}").status == 403, "only the page's own address takes it"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "192.168.1.7:{port}",
        "localhost.evil.example:{port}",
        "",
    ],
)
def test_other_names_of_this_address_get_nothing(server: Running, host: str) -> None:
    """A name that a foreign site has rebound to this address (DNS rebinding)."""
    found = ask(server, f"/?token={server.token}", bearer(server), host=host.format(port=server.port))
    assert found.status in (400, 403) and b"folder" not in found.body and "set-cookie" not in found.headers


@pytest.mark.parametrize("host", ["localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}", "127.0.0.1:{port}"])
def test_own_names_get_an_answer(server: Running, host: str) -> None:
    assert ask(server, "/api/sources", bearer(server), host=host.format(port=server.port)).status == 200


def test_two_hosts_get_nothing(server: Running) -> None:
    assert ask(server, "/api/sources", bearer(server), "Host: evil.example").status in (400, 403)


@pytest.mark.parametrize(
    "field",
    [
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: http://127.0.0.1:1",
        "Origin: https://127.0.0.1:{port}",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ],
)
def test_pages_of_other_sites_get_nothing(server: Running, field: str) -> None:
    for path in ("/api/sources", f"/?token={server.token}"):
        found = ask(server, path, bearer(server), field.format(port=server.port))
        assert found.status == 403 and b"other sites" in found.body
        assert "access-control-allow-origin" not in found.headers and "set-cookie" not in found.headers
    own = f"Origin: http://127.0.0.1:{server.port}"
    assert ask(server, "/api/sources", bearer(server), own, "Sec-Fetch-Site: same-origin").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "X"])
def test_other_methods_are_refused(server: Running, method: str) -> None:
    found = ask(server, "/api/sources", bearer(server), "Content-Length: 0", method=method)
    assert found.status == 405 and found.headers["allow"] == "get, head"


@pytest.mark.parametrize(
    "path",
    [
        "/../app.py",
        "/%2e%2e/app.py",
        "/..%2fapp.py",
        "/....//app.py",
        "//etc/passwd",
        "/%00index.html",
        "/page/../../security.py",
        "/..\\app.py",
        "/index.html/",
        "/app.py",
        "/api/nothing",
        "/api/sources/",
    ],
)
def test_paths_out_of_the_page_are_not_there(server: Running, path: str) -> None:
    found = ask(server, path, bearer(server))
    assert found.status in (400, 404, 307), found
    assert b"import" not in found.body and b"root:" not in found.body


def test_every_response_forbids_what_the_page_does_not_need(server: Running) -> None:
    paths = ("/", "/api/sources", "/api/topic?topic=nope", "/nothing", "/api/export?topic=v2-none-ct", f"/?token={server.token}")
    for found in (*(ask(server, path, bearer(server)) for path in paths), ask(server, "/"), ask(server, "/", method="POST")):
        policy = dict(one.split(" ", 1) for one in found.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == policy["form-action"] == "'self'"
        assert found.headers["x-content-type-options"] == "nosniff" and found.headers["cache-control"] == "no-store"
        assert found.headers["referrer-policy"] == "no-referrer" and "server" not in found.headers
        assert found.headers["cross-origin-opener-policy"] == found.headers["cross-origin-resource-policy"] == "same-origin"


def test_nonsense_does_not_end_the_server(server: Running) -> None:
    for data in (
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"\r\n" * 99,
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as sent:
            try:
                sent.sendall(data)
                sent.shutdown(socket.SHUT_WR)
                sent.recv(65536)
            except OSError:
                pass  # It may have closed the connection already.
    assert ask(server, "/api/sources", bearer(server)).status == 200


def test_it_listens_beyond_this_machine_only_if_told_to() -> None:
    ran = run("ui", KAFKA_3, "--host", "0.0.0.0")
    assert ran.exit_code == 2 and "--allow-remote" in ran.error


def test_a_wrong_source_is_one_error(tmp_path: object) -> None:
    assert "not a folder" in run("ui", __file__).error or run("ui", __file__).exit_code == 1
    assert run("ui", f"{tmp_path}/nothing").error.startswith("tidelog: no such folder")


@pytest.mark.parametrize("option", ["--decode", "--key-decode"])
def test_an_unknown_format_is_an_error_at_the_start(option: str, tmp_path: Path) -> None:
    # The folder does not exist, so that the server starts in no case.
    assert run("ui", f"{tmp_path}/nothing", option, "orders=jsn").error.startswith(
        f"tidelog: {option}: unknown format: jsn (did you mean json?)"
    )


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--schema", "missing.avsc"], "cannot read the schema: No such file or directory (missing.avsc)"),
        (["--schema", "orders=missing"], "cannot read the schema: No such file or directory (missing)"),
        (["--schema", "."], "cannot read the schema: Is a directory (.)"),
        (["--schema", ""], "the file is missing: found '', expected FILE or TOPIC=FILE"),
        (["--schema", "orders="], "the file is missing: found 'orders=', expected FILE or TOPIC=FILE"),
        (["--decode", "orders="], "the format is missing: found 'orders=', expected FORMAT or TOPIC=FORMAT"),
        (["--schema", "bytes.avsc"], "the schema is not UTF-8 (bytes.avsc)"),
        (["--schema", "empty.avsc"], "not an Avro schema: "),
        (["--decode", "json", "--schema", "bytes.avsc"], "the schema is not UTF-8 (bytes.avsc)"),
        (["--registry-config", "missing"], "cannot read the properties: No such file or directory (missing)"),
    ],
)
def test_a_file_that_an_option_names_is_read_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bytes.avsc").write_bytes(b"\xff\x00")
    Path("empty.avsc").write_bytes(b"")
    for command in (["ui", "nothing"], ["cat", "nothing", "orders", *([] if "--decode" in options else ["--decode", "avro"])]):
        assert error in run(*command, *options).error
