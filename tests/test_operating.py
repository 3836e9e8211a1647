"""The files in operating/ and .github/: queries fit the broker's metrics, and what they name exists."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from confluent_kafka import Consumer, Producer
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import tidelog
from tests.cli.conftest import run
from tests.patience import PATIENCE_S
from tidelog.broker.replicas.replica_numbers import ReplicaNumbers
from tidelog.broker.server.scraped.group_lags import GroupLags
from tidelog.broker.server.scraped.prometheus import BrokerCollector, snapshot
from tidelog.cli.commands.serve import command as serve
from tidelog.clock import ManualClock, SystemClock

ROOT = Path(__file__).resolve().parent.parent
OPERATING = ROOT / "operating"
ALERTS = yaml.safe_load((OPERATING / "prometheus" / "tidelog-alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((OPERATING / "grafana" / "tidelog.json").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
UNIT = (OPERATING / "systemd" / "tidelog.service").read_text()
CONTAINERFILE = (OPERATING / "container" / "Containerfile").read_text()
PAGE = (ROOT / "docs" / "operating.md").read_text()

TARGET_LABELS = frozenset({"instance", "job"})
"""What Prometheus adds."""


@pytest.fixture(scope="module")
def metrics() -> dict[str, frozenset[str]]:
    """The labels of each sample that a broker with a group reports, and those of a cluster's member."""
    clock = ManualClock(SystemClock().now_ms())
    with tidelog.Broker(clock=clock) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for value in (b"first", b"second", b"third"):
            producer.produce("orders", value)
        assert producer.flush(PATIENCE_S) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "app", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        first, second = consumer.poll(PATIENCE_S), consumer.poll(PATIENCE_S)
        assert first is not None and second is not None
        consumer.commit(first, asynchronous=False)
        node = broker.call(lambda running: running.node)
        on_loop = lambda work: broker.call(lambda running: work())  # noqa: E731
        groups = GroupLags(node, on_loop)
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(BrokerCollector(lambda: snapshot(node, on_loop)._replace(replicas=ReplicaNumbers()), groups.scrape))
        generate_latest(registry)
        clock.advance(20_000)  # The time to the end needs a group's rate.
        consumer.commit(second, asynchronous=False)
        text = generate_latest(registry).decode()
        consumer.close()
    found: dict[str, set[str]] = {"up": set()}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return {name: frozenset(labels) | TARGET_LABELS for name, labels in found.items()}


def dashboard_queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "5m")


QUERIES = [*dashboard_queries(), *(rule["expr"] for rule in ALERTS)]


def labels_of(node: Any, metrics: dict[str, frozenset[str]]) -> frozenset[str]:
    """The labels of a query's result. Fails for a metric or a label that does not exist."""
    match type(node).__name__:
        case "VectorSelector":
            assert node.name in metrics, f"no broker reports {node.name}"
            for matcher in node.matchers.matchers:
                assert matcher.name in metrics[node.name], f"{node.name} has no label {matcher.name}"
            return metrics[node.name]
        case "MatrixSelector":
            return labels_of(node.vector_selector, metrics)
        case "AggregateExpr":
            inner = labels_of(node.expr, metrics)
            kept = frozenset(node.modifier.labels if node.modifier else ())
            assert kept <= inner, f"{sorted(kept - inner)} are not labels of {node.expr}"
            return kept
        case "Call":
            inner = frozenset().union(*(labels_of(one, metrics) for one in node.args))
            if node.func.name == "histogram_quantile":
                assert "le" in inner, "a quantile needs the buckets"
                return inner - {"le"}
            return inner
        case "BinaryExpr":
            left, right = labels_of(node.lhs, metrics), labels_of(node.rhs, metrics)
            assert not left or not right or left == right, f"{sorted(left)} never match {sorted(right)}"
            return left | right
        case "ParenExpr" | "UnaryExpr":
            return labels_of(node.expr, metrics)
        case _:
            return frozenset()


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_fits_the_brokers_metrics(query: str, metrics: dict[str, frozenset[str]]) -> None:
    labels_of(promql_parser.parse(query), metrics)


@pytest.mark.parametrize(
    "query",
    [
        "tidelog_requests",
        'tidelog_connections{topic="x"}',
        "sum by (topic) (tidelog_requests_total)",
        "histogram_quantile(0.9, sum by (api) (rate(tidelog_request_seconds_bucket[5m])))",
        "tidelog_log_bytes / tidelog_connections",
    ],
)
def test_one_that_does_not_fit_is_found(query: str, metrics: dict[str, frozenset[str]]) -> None:
    with pytest.raises(AssertionError):
        labels_of(promql_parser.parse(query), metrics)


def test_legends_and_summaries_name_labels_that_are_there(metrics: dict[str, frozenset[str]]) -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            query = promql_parser.parse(target["expr"].replace("$__rate_interval", "5m"))
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels_of(query, metrics), target
    for rule in ALERTS:
        labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert labels <= labels_of(promql_parser.parse(rule["expr"]), metrics), rule["alert"]


def test_the_dashboard() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids)) > 30
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$(\w+)", " ".join(dashboard_queries()))) <= variables
    shown = " ".join(dashboard_queries())
    for name in re.findall(r"`(tidelog_\w+?)(?:_total)?`", (ROOT / "docs" / "broker.md").read_text()):
        assert name in shown or name in NOT_SHOWN, f"{name} is on no panel"


NOT_SHOWN = {
    "tidelog_connections_accepted",  # Rates of open connections say more.
    "tidelog_requests_closed",
    "tidelog_requests_waited",
    "tidelog_topic_appends",  # In an alert.
    "tidelog_segments",
    "tidelog_partitions",
    "tidelog_group_partitions_left_out",
}


def test_the_page_says_what_to_do_about_each_alert() -> None:
    section = PAGE.partition("## Alerts")[2].partition("\n## ")[0]
    assert set(re.findall(r"Tidelog\w+", section)) == {rule["alert"] for rule in ALERTS}
    for named in re.findall(r"`(operating/[\w/.-]+)`", PAGE):
        assert (ROOT / named).is_file(), named


@pytest.mark.interop
@pytest.mark.thorough("the queries are evaluated on real metrics above; building promtool takes minutes")
@pytest.mark.skipif(not (shutil.which("promtool") or shutil.which("go")), reason="neither promtool nor go is on the PATH")
def test_the_alerts_with_promtool() -> None:
    folder = OPERATING / "prometheus"
    program = shutil.which("promtool")
    tool = [program] if program else ["go", "run", "github.com/prometheus/prometheus/cmd/promtool@v0.316.0"]
    for arguments in (("check", "config", "prometheus.yml"), ("test", "rules", "tidelog-alerts.test.yml")):
        ran = subprocess.run([*tool, *arguments], cwd=folder, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr


# --- the unit and the container


def check_options(arguments: list[str]) -> None:
    """Parse arguments of `tidelog serve`, without running it."""
    with serve.make_context("serve", arguments):
        pass


def test_the_units_commands_are_ours() -> None:
    commands = re.findall(r"^ExecStart(?:Pre)?=(.*)", UNIT, re.MULTILINE)
    assert len(commands) == 2
    for one in commands:
        program, name, *arguments = shlex.split(one)
        assert (Path(program).name, name) == ("tidelog", "serve")
        check_options(arguments)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not on the PATH")
def test_the_unit_with_systemd(tmp_path: Path) -> None:
    unit = tmp_path / "tidelog.service"
    unit.write_text(UNIT.replace("/opt/tidelog/bin/tidelog", "/bin/true"))
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    unit.write_text(UNIT.replace("/opt/tidelog/bin/tidelog", "/bin/true").replace("Type=notify", "Type=notified"))
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert "notified" in ran.stderr


def test_the_container() -> None:
    instructions = re.findall(r"^([A-Z]+) (.+)", CONTAINERFILE, re.MULTILINE)
    for name, rest in instructions:
        words = rest.split()
        if name == "COPY" and not words[0].startswith("--from"):
            assert all((ROOT / word).exists() for word in words[:-1]), rest
    known = dict(instructions)
    program, name, *arguments = json.loads(known["ENTRYPOINT"])
    assert (program, name) == ("tidelog", "serve")
    check_options([*arguments, *json.loads(known["CMD"])])
    assert set(known["EXPOSE"].split()) == {part.rpartition(":")[2] for part in arguments if re.fullmatch(r":\d+", part)}
    compile(json.loads(known["HEALTHCHECK"].partition("CMD ")[2])[2], "HEALTHCHECK", "exec")
    extras = re.search(r"\[(\w+(?:,\w+)*)\]'", CONTAINERFILE)
    assert extras is not None
    optional = re.findall(
        r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text().partition("optional-dependencies]")[2], re.MULTILINE
    )
    assert set(extras[1].split(",")) <= set(optional)


# --- the workflows


def test_the_workflows_run_what_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = set()
    for path in WORKFLOWS:
        text = path.read_text()
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
        wanted |= set(re.findall(r"run: make (\S+)", text))
    assert {"check", "test", "interop"} <= wanted <= targets


@pytest.mark.interop
@pytest.mark.skipif(not (shutil.which("actionlint") or shutil.which("go")), reason="neither actionlint nor go is on the PATH")
def test_the_workflows_with_actionlint() -> None:
    program = shutil.which("actionlint")
    command = [program] if program else ["go", "run", "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"]
    ran = subprocess.run([*command, "-no-color", *WORKFLOWS], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_example_of_a_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"^```console\n\$ tidelog (serve --check.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert run(*example[0].replace(":9092", ":0").split()).stdout == example[1].replace(":9092", ":0")
