"""The pytest plugin, as a project that uses it meets it."""

import os
import subprocess
import sys

from tests.patience import PATIENCE_S

TESTS = """
import socket

import pytest

DAY_MS = 24 * 3600 * 1000


def connects(broker):
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60):
        return True


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


def test_one_that_is_stopped_early(make_tidelog_broker):
    broker = make_tidelog_broker()
    assert broker.stop()
    assert not broker.is_running
"""


def test_the_fixtures(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tidelog.testing.plugin", "-p", "no:cacheprovider", "-W", "error"]
    # Where it keeps its folders by default, pytest first removes what earlier runs have left: that may take a minute.
    command += ["--basetemp", str(tmp_path / "its")]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_plugin_costs_nothing_before_it_is_used():
    code = (
        "import sys, tidelog.testing.plugin; print([m for m in ('asyncio', 'tidelog.storage.log_manager') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.stdout == "[]\n", ran.stderr
