"""The pytest plugin, as a project that uses it meets it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S

TESTS = """
import socket

import pytest

from tidelog.testing import broker_fixture

DAY_MS = 24 * 3600 * 1000

shared = broker_fixture(scope="session", num_partitions=2, topics=["kept"])
secured = broker_fixture(scope="module", tls=True, users={"alice": "secret"})


def connects(broker):
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60):
        return True


def topics(broker):
    return {view.name: len(view.partitions) for view in broker.call(lambda running: list(running.node.topics.all()))}


def test_a_broker(tidelog_broker, tmp_path):
    assert connects(tidelog_broker)
    assert tidelog_broker.data_dir.parent == tmp_path
    assert tidelog_broker.call(lambda broker: broker.node.config.num_partitions) == 1


class TestWithProperties:
    @pytest.fixture
    def tidelog_broker_properties(self):
        return {"num.partitions": 7}

    def test_they_count(self, tidelog_broker):
        assert tidelog_broker.call(lambda broker: broker.node.config.num_partitions) == 7

    @pytest.mark.tidelog_broker(num_partitions=9)
    def test_the_marker_takes_precedence(self, tidelog_broker):
        assert tidelog_broker.call(lambda broker: broker.node.config.num_partitions) == 9


@pytest.mark.tidelog_broker(users={"alice": "secret"}, num_partitions=2)
class TestWithUsers:
    @pytest.mark.tidelog_broker(num_partitions=3)
    def test_the_inner_marker_takes_precedence(self, tidelog_broker):
        assert tidelog_broker.client_config(user="alice")["security.protocol"] == "SASL_PLAINTEXT"
        assert tidelog_broker.call(lambda broker: broker.node.config.num_partitions) == 3


def test_several_and_a_clock(make_tidelog_broker, tidelog_clock):
    first, second = make_tidelog_broker(clock=tidelog_clock), make_tidelog_broker(num_partitions=3)
    assert first.port != second.port
    assert first.data_dir != second.data_dir
    assert connects(first) and connects(second)
    ran = []
    first.call(lambda broker: broker.node.manager.scheduler.schedule("noted", lambda: ran.append(1), delay_ms=DAY_MS))
    tidelog_clock.advance(DAY_MS - 1)
    assert not ran
    tidelog_clock.advance(1)
    assert ran == [1]


@pytest.mark.tidelog_topics("orders", retention_ms=DAY_MS)
def test_the_brokers_clock_is_the_tests(tidelog_clock, tidelog_broker):
    tidelog_broker.produce("orders", "old")
    tidelog_clock.advance(2 * DAY_MS)
    assert tidelog_broker.records("orders") == []


def test_one_that_is_stopped_early(make_tidelog_broker):
    broker = make_tidelog_broker()
    assert broker.stop()
    assert not broker.is_running


@pytest.mark.tidelog_topics("orders", "payments", partitions=3)
@pytest.mark.tidelog_topics("audit", cleanup_policy="compact")
def test_topics(tidelog_broker):
    assert topics(tidelog_broker) == {"audit": 1, "orders": 3, "payments": 3}


class TestAShared:
    ports = set()

    @pytest.mark.tidelog_topics("orders")
    def test_topic_is_made_with_the_broker(self, shared):
        assert topics(shared) == {"kept": 2, "orders": 1}
        shared.produce("orders", "first")
        self.ports.add(shared.port)

    @pytest.mark.tidelog_topics("orders", partitions=4)
    def test_topic_is_made_again(self, shared):
        assert topics(shared) == {"kept": 2, "orders": 4}
        assert shared.records("orders") == []
        self.ports.add(shared.port)

    def test_topic_is_gone(self, shared, tidelog_broker):
        assert topics(shared) == {"kept": 2}
        assert len(self.ports | {shared.port}) == 1
        assert tidelog_broker.port != shared.port


def test_tls_and_users(secured):
    assert secured.client_config("java")["security.protocol"] == "SASL_SSL"
"""

FAILING = """
import pytest

from tidelog.testing import KafkaContainer, broker_fixture

shared = broker_fixture(scope="session")
unused = broker_fixture(scope="session")


@pytest.fixture(scope="session", autouse=True)
def container():
    with KafkaContainer() as kafka:
        yield kafka


def test_passes(tidelog_broker, unused):
    tidelog_broker.produce("fine", "value")
    unused.produce("fine", "value")


@pytest.mark.parametrize("name", ["a/b c", "x"])
def test_fails(tidelog_broker, make_tidelog_broker, shared, container, name):
    for broker in (tidelog_broker, make_tidelog_broker(), make_tidelog_broker(), shared, container.broker):
        broker.produce("orders", ["a", "b"])
    assert name == "x"


def test_without_a_broker():
    raise ValueError


def test_passes_again(tidelog_broker):
    pass
"""

CONTAINER = """
import pytest
from testcontainers.kafka import KafkaContainer


def test_it_is_ours():
    assert KafkaContainer.__module__ == "tidelog.testing.kafka_container"
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tidelog.testing.plugin", "-p", "no:cacheprovider", "-W", "error"]
    command += options
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, env=env)


def test_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    ran = run_pytest(tmp_path, "--strict-markers")
    assert "12 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_fixtures_in_parallel(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    ran = run_pytest(tmp_path, "-p", "xdist.plugin", "-n", "2", "--dist", "loadscope")
    assert "12 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_logs_of_failed_tests_are_kept(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILING)
    ran = run_pytest(tmp_path, "-p", "xdist.plugin", "-n", "1", "--tidelog-keep")
    assert "2 failed, 3 passed" in ran.stdout, ran.stdout + ran.stderr
    test, shared = "test_it.py-test_fails[a-b-c]", "shared-gw0"
    kept = [f"{test}/tidelog_broker", f"{test}/tidelog-0", f"{test}/tidelog-1", f"{shared}/shared", f"{shared}/KafkaContainer"]
    found = tmp_path / "tidelog-kept"
    folders = {path.relative_to(found).as_posix() for path in found.glob("*/*") if path.is_dir()}
    assert folders == set(kept)
    assert (found / ".gitignore").read_text() == "*\n"
    commands = re.findall(r"^tidelog cat .*", ran.stdout, re.MULTILINE)
    assert {shlex.split(one)[2].removeprefix("tidelog-kept/") for one in commands} == set(kept)
    program = [sys.executable, "-m", *shlex.split(commands[0])]
    shown = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert [line.split()[-1] for line in shown.stdout.splitlines()[:2]] == ["a", "b"], shown.stdout + shown.stderr
    ran = run_pytest(tmp_path, "--tidelog-keep", "-k", "test_fails")
    assert "1 failed" in ran.stdout, "a folder that was kept before is replaced: " + ran.stdout
    ran = run_pytest(tmp_path, "-k", "test_fails")
    assert "kept by Tidelog" not in ran.stdout


def test_testcontainers_class_is_replaced_before_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "testcontainers").mkdir()
    (tmp_path / "testcontainers" / "__init__.py").touch()
    (tmp_path / "testcontainers" / "kafka.py").write_text("class KafkaContainer: ...")
    (tmp_path / "conftest.py").write_text(CONTAINER.partition("\n\n")[0])
    (tmp_path / "test_it.py").write_text(CONTAINER)
    assert "1 failed" in run_pytest(tmp_path).stdout
    ran = run_pytest(tmp_path, "--tidelog-testcontainers")
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_plugin_costs_nothing_before_it_is_used() -> None:
    code = (
        "import sys, tidelog.testing.plugin; print([m for m in ('asyncio', 'tidelog.storage.log_manager') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.stdout == "[]\n", ran.stderr
