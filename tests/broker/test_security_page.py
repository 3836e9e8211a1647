"""The page's secured broker in five minutes, as it stands there: each command is run, in an empty folder, on other ports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.kafka.java import free_port
from tests.patience import PATIENCE_S

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"


def blocks() -> list[str]:
    section = PAGE.read_text(encoding="utf-8").split("## A secured broker\n")[1].split("\n## ")[0].split("\n| property")[0]
    return re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)


def test_a_secured_broker_in_five_minutes(tmp_path: Path) -> None:
    ports = {"9092": str(free_port()), "9093": str(free_port())}
    keys, server, client, use = (re.sub(r"\b909[23]\b", lambda found: ports[found[0]], block) for block in blocks())
    (tmp_path / "server.properties").write_text(server)
    (tmp_path / "client.properties").write_text(client)
    for line in keys.splitlines():
        subprocess.run(line.removeprefix("$ "), shell=True, check=True, cwd=tmp_path, capture_output=True)
    protect, serve, ask = (line.removeprefix("$ ") for line in use.splitlines())
    subprocess.run(protect, shell=True, check=True, cwd=tmp_path)
    command = [sys.executable, "-m", *serve.removesuffix(" &").split()]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        try:
            assert broker.stdout is not None
            assert f"localhost:{ports['9093']}" in broker.stdout.readline()
            asked = [sys.executable, "-m", *ask.split()]
            done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
            assert (done.returncode, done.stderr) == (0, "")
        finally:
            broker.terminate()
    assert broker.returncode == 0
