"""Ports of Apache Kafka 3.9.1 that want TLS, SASL or both: everything that takes host:port says so within two seconds."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import run
from tests.kafka import Kafka391
from tests.kafka.java import free_port
from tidelog.client.connections.security import sasl_mechanisms, wants_tls
from tidelog.clock import SystemClock
from tidelog.errors import SecurityProtocolError
from tidelog.storage.log_manager import LogManager

SECONDS = 2.0
PASSWORD = "changeit"


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of a broker's listeners, by security protocol."""
    folder = tmp_path_factory.mktemp("secured")
    store = folder / "keystore.p12"
    keytool = ["keytool", "-genkeypair", "-keyalg", "RSA", "-alias", "kafka", "-dname", "CN=localhost", "-storetype", "PKCS12"]
    subprocess.run([*keytool, "-keystore", store, "-storepass", PASSWORD, "-validity", "2"], check=True, capture_output=True)
    numbers = {name: free_port() for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
    kafka = Kafka391(folder)
    module = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="{PASSWORD}";'
    kafka.properties |= {
        "listeners": ",".join(
            [
                f"PLAINTEXT://127.0.0.1:{kafka.port}",
                f"CONTROLLER://127.0.0.1:{kafka.controller_port}",
                *(f"{name}://127.0.0.1:{number}" for name, number in numbers.items()),
            ]
        ),
        "advertised.listeners": ",".join(
            [f"PLAINTEXT://127.0.0.1:{kafka.port}", *(f"{name}://127.0.0.1:{number}" for name, number in numbers.items())]
        ),
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in ("PLAINTEXT", *numbers))
        + ",CONTROLLER:PLAINTEXT",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": module,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": module,
    }
    with kafka:
        kafka.create_topic("events")
        yield {
            "data": str(kafka.data),
            "PLAINTEXT": kafka.bootstrap,
            **{name: f"127.0.0.1:{number}" for name, number in numbers.items()},
        }


@pytest.mark.parametrize("name", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_who_is_told(ports: dict[str, str], name: str, tmp_path: Path) -> None:
    address = ports[name]
    said = "the port wants clients to authenticate by SASL" if name == "SASL_PLAINTEXT" else "the port wants TLS"
    began = time.monotonic()
    with pytest.raises(SecurityProtocolError, match=said), tidelog.connect(address) as client:
        client.topics()
    assert time.monotonic() - began < SECONDS
    with LogManager(tmp_path / "ours", SystemClock()) as manager:
        manager.create_topic("events", 1)
    for command in (
        ["handover", str(tmp_path / "ours"), "--to", ports["data"], "--bootstrap-server", address],
        ["stat", address],
        ["cat", address, "events"],
        ["find", address, "events", "--at", "now"],
        ["groups", "list", address],
        ["groups", "describe", address, "g"],
        ["groups", "reset", address, "g", "--to", "earliest"],
    ):
        began = time.monotonic()
        ran = run(*command)
        assert (ran.exit_code, said in ran.error) == (1, True), (command, ran.error)
        assert time.monotonic() - began < SECONDS, command


def test_a_plain_port_wants_neither(ports: dict[str, str]) -> None:
    host, port = ports["PLAINTEXT"].split(":")
    assert (wants_tls((host, int(port))), sasl_mechanisms((host, int(port)))) == (False, None)
    host, port = ports["SASL_PLAINTEXT"].split(":")
    assert sasl_mechanisms((host, int(port))) == ["PLAIN"]
    with tidelog.connect(ports["PLAINTEXT"]) as client:
        assert list(client.topics()) == ["events"]
