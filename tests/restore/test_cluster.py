"""A backup restored into a running cluster: the records of a moment once each, killed or not; groups where they were."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

import tidelog
from tests.cli.conftest import run, run_ok
from tests.copying.conftest import target as broker  # noqa: F401
from tests.patience import PATIENCE_S
from tests.restore.logs import NOON, STEP_MS, TOPIC, History, history, of_model
from tidelog.client.connections.cluster import Cluster
from tidelog.client.consumer_groups.groups import commit_offsets, committed_offsets
from tidelog.clock import ManualClock
from tidelog.copying import copier
from tidelog.model import TopicPartition
from tidelog.restore import restoring
from tidelog.restore.cuts import plan_restore
from tidelog.restore.read_back import read_back
from tidelog.restore.request import RestoreRequest
from tidelog.restore.restoring import restore


class Dead(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> History:
    return history(tmp_path_factory.mktemp("made"), 5)


def rows_of(place: str, topic: str) -> list[tuple[Any, ...]]:
    rows = tidelog.scan(place, topic, isolation="read_committed").read_all().to_pylist()
    return [(round(row["timestamp"].timestamp() * 1000), row["key"], row["value"]) for row in rows]


def of(made: History, cut: int) -> list[tuple[Any, ...]]:
    return [row[1:] for row in of_model(made.committed(cut))]


@pytest.mark.parametrize("seed", range(3))
def test_random_moments(made: History, broker: tidelog.Broker, tmp_path: Path, seed: int) -> None:  # noqa: F811
    until_ms = NOON + Random(seed).randrange(made.points[-1][0] - NOON) + 1
    end = next(end for time_ms, end in made.points if time_ms >= until_ms)
    for order in ("append", "time"):
        name = f"{order}-{seed}"
        arguments = ["--until", until_ms, "--by", order, "--rename", f"{TOPIC}={name}", "--work", tmp_path / order]
        ran = run_ok("restore", made.backup, "--to", broker.bootstrap_servers, *arguments)
        assert "as in the backup" in ran.stdout
        if order == "append":
            assert rows_of(broker.bootstrap_servers, name) == of(made, made.cut(until_ms, end))
        else:
            wanted = [row[1:] for row in of_model(made.committed(made.points[-1][1])) if row[1] < until_ms]
            assert rows_of(broker.bootstrap_servers, name) == wanted


def test_a_restore_that_is_killed_goes_on(
    made: History,
    broker: tidelog.Broker,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = RestoreRequest(backup=str(made.backup), target=broker.bootstrap_servers, renames={TOPIC: "killed"})
    confirmed = copier.OffsetMapWriter.confirm
    calls = iter(range(100))

    def dies(writer: copier.OffsetMapWriter) -> None:
        if next(calls) == 0:
            raise Dead
        confirmed(writer)

    monkeypatch.setattr(copier.OffsetMapWriter, "confirm", dies)
    with pytest.raises(Dead):
        restore(plan_restore(request), ManualClock(NOON), work=tmp_path)
    report = restore(plan_restore(request), ManualClock(NOON), work=tmp_path)
    assert report.differences == []
    assert rows_of(broker.bootstrap_servers, "killed") == of(made, made.points[-1][1])


def test_topics_with_records_are_refused(made: History, broker: tidelog.Broker, tmp_path: Path) -> None:  # noqa: F811
    first = ["restore", made.backup, "--to", broker.bootstrap_servers, "--rename", f"{TOPIC}=full"]
    run_ok(*first, "--work", tmp_path / "1")
    for only in ([], ["--dry-run"]):
        refused = run(*first, "--work", tmp_path / "2", *only)
        assert refused.exit_code == 1
        assert "topics with records already exist: full" in refused.stderr
    other = run(*first, "--work", tmp_path / "2", "--into-existing", "--partitions", f"{TOPIC}=7", "--dry-run")
    assert "a different number of partitions: found 1, expected 7" in other.error
    run_ok(*first, "--work", tmp_path / "2", "--into-existing", "--dry-run")
    run_ok(*first, "--work", tmp_path / "3", "--into-existing")
    assert rows_of(broker.bootstrap_servers, "full") == 2 * of(made, made.points[-1][1])


def test_what_is_not_yet_stable_is_waited_for(
    made: History,
    broker: tidelog.Broker,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker confirms a transaction before its markers are written, and another's transaction may be open below it."""
    other = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "other", "log_level": 0})
    other.init_transactions()
    other.begin_transaction()
    other.produce("held", b"of another", partition=0)
    assert other.flush() == 0

    def ends_then_reads(*arguments: Any) -> Any:
        other.commit_transaction()
        return read_back(*arguments)

    monkeypatch.setattr(restoring, "read_back", ends_then_reads)
    first = ["restore", made.backup, "--to", broker.bootstrap_servers, "--rename", f"{TOPIC}=held", "--into-existing"]
    assert "as in the backup" in run_ok(*first, "--work", tmp_path).stdout


def test_what_retention_has_removed_since_is_named(made: History, broker: tidelog.Broker, tmp_path: Path) -> None:  # noqa: F811
    first = ["restore", made.backup, "--to", broker.bootstrap_servers, "--rename", f"{TOPIC}=eaten", "--work", tmp_path]
    run_ok(*first)
    with tidelog.connect(broker.bootstrap_servers) as client:
        client.produce("eaten", b"of an application", timestamp=NOON)
    assert "as in the backup" in run_ok(*first).stdout  # What others have written since is no difference.
    place = Place("eaten", 0, 10)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.delete_records([place])[place].result(PATIENCE_S)
    again = run(*first)
    assert again.exit_code == 3
    assert (
        "retention or DeleteRecords has removed records: eaten-0 was written from offset 0, but its log start offset is now 10"
        in again.stderr
    )


def test_groups_are_where_they_were(broker: tidelog.Broker, tmp_path: Path) -> None:  # noqa: F811
    """Commits are appended at the broker's own time, so moments lie between them by its clock."""
    key = TopicPartition("letters", 0)
    clock = ManualClock(NOON)
    options: dict[str, Any] = {"offsets_topic_num_partitions": 1, "log_retention_ms": -1}
    with (
        tidelog.Broker(data_dir=tmp_path / "source", clock=clock, **options) as source,
        Cluster.at(source.bootstrap_servers, "test") as cluster,
        tidelog.connect(source.bootstrap_servers) as client,
    ):
        for number in range(20):
            client.produce("letters", b"%d" % number, timestamp=NOON + number * STEP_MS)
            clock.advance(STEP_MS)
            commit_offsets(cluster, "readers", {key: number + 1})
            commit_offsets(cluster, "others", {key: number // 2})
    moment = NOON + 10 * STEP_MS + STEP_MS // 2
    backup = tmp_path / "backup"
    run_ok("backup", tmp_path / "source", backup)
    for group, place in (("reader", tmp_path / "f"), ("nope", broker.bootstrap_servers)):
        ran = run("restore", backup, "--until", moment, "--groups", "others", "--groups", group, "--to", place)
        assert ran.exit_code == 1
        assert f"no group {group!r} in the backup before 2013-07-10T12:00:10.500Z" in ran.error
        assert ("(did you mean readers?)" in ran.error) == (group == "reader")
    with_map = ["restore", backup, "--until", moment, "--groups", "readers", "--rename", "letters=old"]
    run_ok(*with_map, "--to", broker.bootstrap_servers, "--work", tmp_path / "work")
    with Cluster.at(broker.bootstrap_servers, "test") as cluster:
        assert committed_offsets(cluster, "readers")[TopicPartition("old", 0)].offset == 10
        assert committed_offsets(cluster, "others") == {}
        commit_offsets(cluster, "readers", {TopicPartition("old", 0): 11})
    again = run_ok(*with_map, "--to", broker.bootstrap_servers, "--work", tmp_path / "work")
    assert "this restore has already been completed" in again.stderr
    with Cluster.at(broker.bootstrap_servers, "test") as cluster:
        assert committed_offsets(cluster, "readers")[TopicPartition("old", 0)].offset == 11
    run_ok("restore", backup, "--until", moment, "--to", tmp_path / "folder")
    listed = run_ok("groups", "describe", tmp_path / "folder", "readers", "--json").json_lines
    assert [line["committed_offset"] for line in listed if line["type"] == "partition"] == [10]
