"""A password that is an option of Spark's is in nothing that a run leaves: plans, progress, errors, logs, events, checkpoints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tidelog

PASSWORD = "of-tests-and-easy-to-find"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_password_is_nowhere(tmp_path: Path) -> None:
    given = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{PASSWORD}";',
    }
    ran = tmp_path / "ran"
    ran.mkdir()
    with tidelog.Broker(tmp_path / "data", **given) as broker:
        broker.create_topic("events")
        broker.create_topic("copied")
        broker.produce("events", b"one")
        address = next(f"127.0.0.1:{one.port}" for one in broker._listeners if one.name == "SASL_PLAINTEXT")
        command = [sys.executable, "-m", "tests.interop.secrets_program", address, str(ran)]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with program:
            said, logged = program.communicate(PASSWORD, timeout=600)
        assert program.returncode == 0, logged[-4000:]
        assert [bool(one.value) for one in broker.records("copied")] == [True, True]
    assert "rows 1" in said
    assert said.count("refused") == 2
    assert PASSWORD not in said
    assert PASSWORD not in logged
    files = [path for path in ran.rglob("*") if path.is_file()]
    assert any(path.is_relative_to(ran / "events") for path in files)
    assert any(path.is_relative_to(ran / "checkpoint") for path in files)
    found = [path for path in files if PASSWORD.encode() in path.read_bytes()]
    assert not found
