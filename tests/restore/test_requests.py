"""What a restore refuses because of its options, what it says of topics that it does not restore, and which restore continues."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import run, run_ok
from tests.copying.conftest import target as broker  # noqa: F401
from tests.restore.logs import NOON, Backed


@pytest.fixture
def backed(tmp_path: Path) -> Backed:
    return Backed(tmp_path)


def write(backed: Backed, *topics: str) -> None:
    for topic in topics:
        log = backed.log(topic)
        log.append([(NOON - 10, b"k", topic.encode()), (NOON + 10_000, b"k", b"later")])
        log.close()


@pytest.mark.parametrize("order", ["append", "time"])
def test_a_chosen_point_that_ends_before_the_time(backed: Backed, tmp_path: Path, order: str) -> None:
    write(backed, "a")
    backed.take()
    backed.take()
    arguments = ["restore", backed.backup, "--to", tmp_path / "f", "--by", order, "--until"]
    ran = run(*arguments, NOON + 1, "--point", 1)
    assert ran.exit_code == 1
    assert "point 1 ends before this time: omit --until or --point" in ran.error
    assert "expected at most 2013-07-10T12:00:00.000Z, the time of point 1" in ran.error
    assert not (tmp_path / "f").exists()
    run_ok(*arguments, NOON + 1, "--point", 2)


def test_a_cluster_gets_a_backup_topic_by_topic(
    backed: Backed,
    broker: tidelog.Broker,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As restore.md says for `_schemas`: each restore has its own work folder, and the same command finds it again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write(backed, "_schemas", "a", "b")
    backed.take()
    command = ["restore", backed.backup, "--to", broker.bootstrap_servers]
    for topics, restored in ((["--topics", "_schemas"], {"_schemas"}), (["--except", "_schemas"], {"a", "b"})):
        lines = run_ok(*command, *topics, "--json").json_lines
        assert {line["topic"] for line in lines} == restored
        again = run_ok(*command, *topics)
        assert "this restore has already been completed" in again.stderr
    assert len(list((tmp_path / "state").glob("tidelog/restore/*"))) == 2


def test_a_work_folder_of_a_different_restore(backed: Backed, broker: tidelog.Broker, tmp_path: Path) -> None:  # noqa: F811
    write(backed, "c", "d")
    backed.take()
    command = ["restore", backed.backup, "--to", broker.bootstrap_servers, "--work", tmp_path / "work"]
    run_ok(*command, "--topics", "c")
    for only in ([], ["--dry-run"]):
        ran = run(*command, "--topics", "d", *only)
        assert ran.exit_code == 1
        assert "the work folder belongs to a different restore: continue that restore with the same options, or " in ran.error
        assert "choose a different folder with --work: found topics {'c': 'c'}, expected topics {'d': 'd'}" in ran.error
        assert "Error(" not in ran.error


def test_topics_that_are_excepted(backed: Backed, tmp_path: Path) -> None:
    write(backed, "a", "b", "bc")
    backed.take()
    command = ["restore", backed.backup, "--to", tmp_path / "f", "--dry-run", "--json"]
    assert [line["topic"] for line in run_ok(*command, "--except", "b*").json_lines] == ["a"]
    assert [line["topic"] for line in run_ok(*command, "--topics", "b*", "--except", "bc").json_lines] == ["b"]
    for arguments, text in (
        (["--except", "bd"], "no topic 'bd' in the backup (did you mean b"),
        (["--topics", "b*", "--except", "a"], "topic 'a' cannot be excepted, because it is not among the topics to restore"),
        (["--except", "a", "--rename", "a=x"], "topic 'a' has a new name, but is not restored"),
        (["--except", "*"], "no topic in the backup matches the requested names"),
    ):
        ran = run(*command, *arguments)
        assert (ran.exit_code, text in ran.error) == (1, True), ran.error


def test_groups_of_a_backup_without_groups(backed: Backed, tmp_path: Path) -> None:
    write(backed, "a")
    backed.take()
    ran = run("restore", backed.backup, "--to", tmp_path / "f", "--groups", "readers")
    assert ran.exit_code == 1
    assert "no group 'readers' in the backup, which has no __consumer_offsets" in ran.error
    run_ok("restore", backed.backup, "--to", tmp_path / "f", "--no-groups")


def test_topics_that_were_deleted_and_are_not_restored(backed: Backed, tmp_path: Path) -> None:
    """A note says so, unless they are restored, or no such topic can have been requested."""
    write(backed, "a", "gone")
    backed.take()
    shutil.rmtree(backed.data / "gone-0")
    backed.take()
    command = ["restore", backed.backup, "--to", tmp_path / "f", "--dry-run", "--json", "--until"]
    between, before = NOON + 500, NOON - 5
    note = "note: topics that were deleted between 2013-07-10T{} and point {} are not restored, because {}"
    for arguments, time, point, why in (
        ([between, "--by", "time"], "12:00:00.500Z", 2, "--by time reads only that point"),
        ([between, "--by", "time", "--topics", "*"], "12:00:00.500Z", 2, "--by time reads only that point"),
        ([between, "--point", 2], "12:00:00.500Z", 2, "--point reads only that point"),
        ([before], "11:59:59.995Z", 1, "the backup has no earlier point"),
        ([before, "--point", 1], "11:59:59.995Z", 1, "the backup has no earlier point"),
    ):
        ran = run_ok(*command, *arguments)
        assert note.format(time, point, why) in ran.stderr.splitlines()
        assert [line["topic"] for line in ran.json_lines] == ["a", "gone"][: 3 - point]
    for arguments in ([between], [between, "--by", "time", "--topics", "a"], [NOON + 1000, "--point", 2]):
        assert "topics that were deleted" not in run_ok(*command, *arguments).stderr


def test_options_that_would_be_ignored(backed: Backed, tmp_path: Path) -> None:
    write(backed, "a")
    backed.take()
    command = ["restore", backed.backup, "--to", tmp_path / "f"]
    existing = run(*command, "--into-existing")
    assert existing.exit_code == 1
    assert "records can be appended to existing topics only in a cluster, because a folder keeps offsets" in existing.error
    partitioner = run(*command, "--partitioner", "murmur2")
    assert partitioner.exit_code == 2
    assert "--partitioner needs --partitions" in partitioner.error
    for dry_run in ([], ["--dry-run"]):
        work = run(*command, "--work", tmp_path / "w", *dry_run)
        assert work.exit_code == 2
        assert "--work needs a cluster: a restore into a folder has no offset maps, because it keeps offsets" in work.error
    assert not (tmp_path / "f").exists()
