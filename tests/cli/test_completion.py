"""Completion: what bash, zsh and fish suggest, and that nothing waits or is printed into the prompt."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import KAFKA_3, ROOT, run, run_ok
from tests.cli.terminal import Terminal
from tests.patience import PATIENCE_S

BASH = """
eval "$(cat {script})"
compopt() {{ echo "compopt $2"; }}
COMP_LINE={line} COMP_POINT={point} COMP_WORDS=({words}) COMP_CWORD={last}
_tidelog_completion tidelog
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def shells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which shells find a command `tidelog`."""
    bin_dir = tmp_path_factory.mktemp("bin")
    program = bin_dir / "tidelog"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tidelog "$@"\n')
    program.chmod(0o755)
    patient = {**os.environ, "TIDELOG_COMPLETION_S": str(PATIENCE_S)}
    return {**patient, "PYTHONPATH": str(ROOT / "src"), "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}"}


def bash(environment: dict[str, str], tmp_path: Path, line: str) -> list[str]:
    """What bash offers for a line; its words end at colons, too."""
    script = tmp_path / "script"
    script.write_text(run_ok("completion", "bash").stdout)
    words = line.replace(":", " : ").split(" ")
    quoted = " ".join(shlex.quote(word) for word in words if word or word is words[-1])
    last = len([word for word in words[:-1] if word])
    text = BASH.format(script=script, line=shlex.quote(line), point=len(line.encode()), words=quoted, last=last)
    ran = subprocess.run(["bash", "--norc", "-c", text], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.stderr == ""
    return ran.stdout.split()


def test_bash(shells: dict[str, str], tmp_path: Path) -> None:
    assert bash(shells, tmp_path, f"tidelog cat {KAFKA_3} two") == ["two-partitions"]
    assert bash(shells, tmp_path, f"tidelog find {KAFKA_3} two-partitions --at la") == ["latest", "latest-tiered"]
    assert bash(shells, tmp_path, f"tidelog cat {KAFKA_3} two-partitions --form") == ["--format"]
    assert bash(shells, tmp_path, "tidelog cat some") == ["compopt", "dirnames"]


def test_topics_and_groups_of_a_broker(shells: dict[str, str], tmp_path: Path) -> None:
    from confluent_kafka import Consumer, TopicPartition

    with tidelog.Broker(tmp_path / "data") as broker:
        for name in ("orders", "orders.returns", "other"):
            broker.create_topic(name)
        with_group = Consumer({**broker.client_config("confluent-kafka"), "group.id": "billing"})
        with_group.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        with_group.close()
        assert bash(shells, tmp_path, f"tidelog cat {broker.bootstrap_servers} ord") == ["orders", "orders.returns"]
        assert bash(shells, tmp_path, f"tidelog cat {broker.bootstrap_servers} orders ord") == ["orders.returns"]
        assert bash(shells, tmp_path, f"tidelog groups describe {broker.bootstrap_servers} b") == ["billing"]


def typed_in_zsh(environment: dict[str, str], home: Path, *lines: tuple[str, str]) -> None:
    """Type each line and a Tab into zsh, and wait until zsh shows the text."""
    home.mkdir()
    in_zsh = {**environment, "HOME": str(home), "TERM": "dumb", "PS1": "%% "}
    terminal = Terminal(["zsh", "-f", "-i"], in_zsh)
    try:
        terminal.until("% ")
        terminal.type("autoload -U compinit; compinit -u\n")
        terminal.type("eval \"$(tidelog completion zsh)\"; print rea''dy\n")
        terminal.until("ready\r\n")
        for line, shown in lines:
            terminal.type(f"{line}\t")
            terminal.until(shown)
            terminal.type("\x15")  # Ctrl-U deletes the line. Ctrl-C would also discard what is typed after it.
    finally:
        terminal.close()


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh: apt-get install zsh")
def test_zsh(shells: dict[str, str], tmp_path: Path) -> None:
    with tidelog.Broker(tmp_path / "data") as broker:
        for name in ("orders", "other"):
            broker.create_topic(name)
        typed_in_zsh(
            shells,
            tmp_path / "home",
            ("tidelog retent", "tidelog retention "),
            ("tidelog c", "Read every record of a time range"),
            ("tidelog cat --form", "tidelog cat --format "),
            ("tidelog cat --format ", "text +jsonl +csv"),
            (f"tidelog cat {KAFKA_3} two", "two-partitions "),
            (f"tidelog cat {KAFKA_3} two-partitions --from yes", "--from yesterday "),
            (f"tidelog cat {KAFKA_3} two-partitions --tz Europe/Berl", "--tz Europe/Berlin "),
            (f"tidelog cat {broker.bootstrap_servers} ord", "orders "),
            (f"tidelog cat {ROOT}/tests/gold", "tests/golden/"),
        )


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish: apt-get install fish")
def test_fish(shells: dict[str, str], tmp_path: Path) -> None:
    line = f"tidelog cat {KAFKA_3} two"
    text = f"tidelog completion fish | source; complete -C {shlex.quote(line)}"
    environment = {**shells, "HOME": str(tmp_path)}
    command = ["fish", "--no-config", "-c", text]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ran.stdout, ran.stderr) == ("two-partitions\n", "")


def test_a_broker_that_does_not_answer_is_not_waited_for(shells: dict[str, str], tmp_path: Path) -> None:
    """Without the limit this waits for the client's time-out, and prints an error."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        completing = {"COMP_LINE": f"tidelog cat {address} x", "_TIDELOG_COMPLETE": "bash_complete"}
        environment = {**shells, **completing, "TIDELOG_COMPLETION_S": "0.5"}
        ran = subprocess.run([sys.executable, "-m", "tidelog"], env=environment, capture_output=True, timeout=PATIENCE_S)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    for place in ("127.0.0.1:1", tmp_path / "none"):
        environment = {**shells, **completing, "COMP_LINE": f"tidelog cat {place} x"}
        ran = subprocess.run([sys.executable, "-m", "tidelog"], env=environment, capture_output=True, timeout=PATIENCE_S)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_a_shell_that_is_not_supported() -> None:
    assert "bash" in run("completion", "tcsh").error
