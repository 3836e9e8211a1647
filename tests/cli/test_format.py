"""`tidelog format`: a folder for a broker of a cluster. That Kafka's brokers start on it, and ours on Kafka's: tests/interop."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import run
from tidelog.errors import InvalidArgumentError
from tidelog.formats.dir_lock import DirLock
from tidelog.formats.partition_metadata import parse_topic_id
from tidelog.storage.folder.folder_format import format_folder
from tidelog.storage.folder.meta_properties import MetaProperties, read_meta_properties, write_meta_properties

CLUSTER = "AAAAAAAAQQCQAAAAAAAAAg"


def test_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "data"
    ran = run("format", str(folder), "--cluster-id", CLUSTER, "--node-id", "4")
    assert ran.exit_code == 0
    owner = read_meta_properties(folder)
    assert owner is not None
    assert (owner.version, owner.cluster_id, owner.node_id) == (1, CLUSTER, 4)
    assert isinstance(owner.directory_uuid, uuid.UUID)
    assert ran.stdout == f"{folder} formatted: node 4 of cluster {CLUSTER}, directory {owner.directory_id}\n"
    other = format_folder(tmp_path / "b", CLUSTER, 5).owner
    assert parse_topic_id(other.directory_id or "") != owner.directory_uuid


def test_by_a_brokers_file(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        f"process.roles=broker\nnode.id=4\ncontroller.quorum.voters=1@localhost:9093\nlog.dirs={tmp_path / 'data'}\n"
        "controller.listener.names=CONTROLLER\nnum.network.threads=3\n"
    )
    assert run("format", "--cluster-id", CLUSTER, "--config", str(config)).exit_code == 0
    assert read_meta_properties(tmp_path / "data") is not None
    given = run("format", str(tmp_path / "other"), "--cluster-id", CLUSTER, "--config", str(config), "--node-id", "9")
    assert "node 9 of" in given.stdout


def test_a_folder_that_is_formatted_is_left_alone(tmp_path: Path) -> None:
    arguments = ("format", str(tmp_path), "--cluster-id", CLUSTER, "--node-id")
    assert run(*arguments, "4").exit_code == 0
    before = (tmp_path / "meta.properties").read_bytes()
    again = run(*arguments, "4")
    assert (again.exit_code, "already formatted" in again.error) == (1, True)
    assert "was already formatted" in run(*arguments, "4", "--ignore-formatted").stdout
    (line,) = run(*arguments, "4", "--ignore-formatted", "--json").json_lines
    assert (line["path"], line["is_new"], line["node_id"], line["cluster_id"]) == (str(tmp_path), False, 4, CLUSTER)
    other = run(*arguments, "5", "--ignore-formatted")
    assert f"found node 4 of cluster {CLUSTER}, expected node 5 of cluster {CLUSTER}" in other.error
    assert (tmp_path / "meta.properties").read_bytes() == before
    write_meta_properties(tmp_path, MetaProperties(4, None, version=0))
    assert "for a different node or cluster" in run(*arguments, "4", "--ignore-formatted").error


def test_what_is_refused(tmp_path: Path) -> None:
    assert run("format", "--cluster-id", CLUSTER, "--node-id", "4").exit_code == 2
    assert run("format", str(tmp_path), "--cluster-id", CLUSTER).exit_code == 2
    for cluster in ("", "a b", "ä"):
        with pytest.raises(InvalidArgumentError, match="the cluster id is invalid"):
            format_folder(tmp_path, cluster, 4)
    with pytest.raises(InvalidArgumentError, match="the node id is out of range"):
        format_folder(tmp_path, CLUSTER, -1)
    (tmp_path / "homework.txt").write_text("")
    assert "is not a data folder" in run("format", str(tmp_path), "--cluster-id", CLUSTER, "--node-id", "4").error
    assert not (tmp_path / "meta.properties").exists()
    with DirLock(tmp_path):
        (tmp_path / "homework.txt").unlink()
        assert run("format", str(tmp_path), "--cluster-id", CLUSTER, "--node-id", "4").exit_code == 1


def test_partitions_that_are_in_it_are_noted(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    ran = run("format", str(tmp_path), "--cluster-id", CLUSTER, "--node-id", "4")
    assert ran.exit_code == 0
    assert ran.notes == [
        f"note: 1 partition is in {tmp_path}: a broker sets aside partitions that are missing from the cluster's metadata"
    ]
