"""`tidelog cat -f FORMAT` beside kcat: the same bytes for each letter, of nulls, empty and binary data."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

import tidelog
from tests.cli.conftest import run_ok
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.interop, pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat: apt-get install kcat")]

RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (None, None, []),
    (b"", b"", []),
    (b"k", None, [("a", b"1"), ("b", None), ("a", b"")]),
    (None, b"\xff\x00value", [("\u00fc", b"x,y=z"), ("n", b"\n")]),
    (b"key\nline", "\u00fc \\n %s".encode(), []),
]

FORMATS = [
    *(rf"[%{letter}]\n" for letter in "tpoTkKsSRh"),
    r"100%% \x41\x7e\t\r\\|%s",
    r"%t/%p@%o %T %k=%s (%h)\n",
    "plain text, no letters",
    "%s",
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidelog.Broker]:
    with tidelog.Broker(tmp_path_factory.mktemp("data")) as broker:
        broker.create_topic("orders", retention_ms=-1)
        for n, (key, value, headers) in enumerate(RECORDS):
            broker.produce("orders", value, key=key, headers=headers, timestamp_ms=1_700_000_000_000 + n)
        yield broker


@pytest.mark.parametrize("text", FORMATS)
def test_formats(broker: tidelog.Broker, text: str) -> None:
    place = broker.bootstrap_servers
    command = ["kcat", "-q", "-C", "-b", place, "-t", "orders", "-p", "0", "-o", "beginning", "-e", "-f", text]
    kcats = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True).stdout
    assert run_ok("cat", place, "orders", "-f", text).stdout_bytes == kcats
