"""Checkpoint files: OffsetCheckpointFileWithFailureHandlerTest, LeaderEpochCheckpointFileWithFailureHandlerTest,
PartitionMetadataFileTest."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from tests.reader.golden import GOLDEN, RELEASES
from tidelog.errors import CorruptCheckpointError, StorageError
from tidelog.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.formats.partition_metadata import format_topic_id, parse_topic_id, read_topic_id, write_topic_id
from tidelog.model import TopicPartition


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recovery-point-offset-checkpoint"


def test_should_persist_and_overwrite_and_reload_file(path: Path) -> None:
    """OffsetCheckpointFileWithFailureHandlerTest.shouldPersistAndOverwriteAndReloadFile"""
    for offsets in ({TopicPartition("foo", 1): 5, TopicPartition("bar", 2): 10}, {TopicPartition("foo", 2): 15}):
        write_offset_checkpoint(path, offsets)
        assert read_offset_checkpoint(path) == offsets
    assert path.read_text() == "0\n1\nfoo 2 15\n"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_should_handle_multiple_lines(path: Path) -> None:
    """OffsetCheckpointFileWithFailureHandlerTest.shouldHandleMultipleLines"""
    offsets = {TopicPartition(f"topic{i}", i): i * 10 for i in range(100)}
    write_offset_checkpoint(path, offsets)
    assert read_offset_checkpoint(path) == offsets


@pytest.mark.parametrize("text", [None, "", "0\n", "0\n0\n"])
def test_should_return_empty_map_for_empty_file(path: Path, text: str | None) -> None:
    """OffsetCheckpointFileWithFailureHandlerTest.shouldReturnEmptyMapForEmptyFile"""
    if text is not None:
        path.write_text(text)
    assert read_offset_checkpoint(path) == {}


def test_should_throw_if_version_is_not_recognised(path: Path) -> None:
    """OffsetCheckpointFileWithFailureHandlerTest.shouldThrowIfVersionIsNotRecognised"""
    path.write_text("2\n1\nfoo 1 5\n")
    with pytest.raises(CorruptCheckpointError, match="version: found 2, expected 0"):
        read_offset_checkpoint(path)


@pytest.mark.parametrize(
    "data",
    [
        b"0\n1\nfoo 1 9223372036854775808\n",
        b"0\n1\nfoo 1 " + b"9" * 5000,
        b"\0" * 5000,
        b"x\n",
        b"0\nx\n",
        b"0\n2\nfoo 1 5\n",
        b"0\n1\nfoo 1\n",
        b"0\n1\nfoo 1 x\n",
        b"0\n1\nfoo 1 5 6\n",
        b"0\n1\nfoo\xff 1 5\n",
    ],
)
def test_damage_is_told(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(CorruptCheckpointError) as raised:
        read_offset_checkpoint(path)
    assert raised.value.path == str(path) and "\n" not in str(raised.value)
    assert len(str(raised.value)) < len(str(path)) + 400, "the garbage is not shown whole"


def test_a_named_pipe_is_no_checkpoint(path: Path) -> None:
    """It would wait for its writer forever, and a device as /dev/zero would never end."""
    os.mkfifo(path)
    other = path.with_name("partition.metadata")
    other.symlink_to("/dev/zero")
    for read in (lambda: read_offset_checkpoint(path), lambda: read_topic_id(other)):
        with pytest.raises(StorageError, match="it is not a regular file"):
            read()


def test_leader_epochs_should_persist_and_overwrite_and_reload_file(tmp_path: Path) -> None:
    """LeaderEpochCheckpointFileWithFailureHandlerTest.shouldPersistAndOverwriteAndReloadFile"""
    path = tmp_path / "leader-epoch-checkpoint"
    for entries in ([(0, 1), (2, 3)], [(0, 4), (5, 6)]):
        epochs = LeaderEpochs()
        for entry in entries:
            epochs.assign(*entry)
        epochs.write(path)
        assert LeaderEpochs.read(path).entries == entries
    assert path.read_text() == "0\n2\n0 4\n5 6\n"


def test_leader_epochs_should_retain_values_even_if_checkpoint_is_recreated(tmp_path: Path) -> None:
    """LeaderEpochCheckpointFileWithFailureHandlerTest.shouldRetainValuesEvenIfCheckpointIsRecreated"""
    path = tmp_path / "leader-epoch-checkpoint"
    assert LeaderEpochs.read(path).entries == []
    epochs = LeaderEpochs()
    epochs.assign(4, 9)
    epochs.write(path)
    assert LeaderEpochs.read(path).entries == LeaderEpochs.read(path).entries == [(4, 9)]


@pytest.mark.parametrize("text", ["0\n1\n1\n", "0\n1\n1 2 3\n", "0\n1\n-1 2\n", "0\n1\nx 2\n"])
def test_leader_epoch_damage_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(text)
    with pytest.raises(CorruptCheckpointError):
        LeaderEpochs.read(path)


def test_maybe_flush_with_topic_id_present(tmp_path: Path) -> None:
    """PartitionMetadataFileTest.testMaybeFlushWithTopicIdPresent: exactly two lines, 43 bytes"""
    path = tmp_path / "partition.metadata"
    topic_id = uuid.uuid4()
    write_topic_id(path, topic_id)
    assert path.read_text().split("\n") == ["version: 0", f"topic_id: {format_topic_id(topic_id)}"]
    assert path.stat().st_size == 43


def test_read(tmp_path: Path) -> None:
    """PartitionMetadataFileTest.testRead"""
    path = tmp_path / "partition.metadata"
    topic_id = uuid.uuid4()
    write_topic_id(path, topic_id)
    assert read_topic_id(path) == topic_id
    assert parse_topic_id(format_topic_id(topic_id)) == topic_id
    assert read_topic_id(tmp_path / "absent") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 0",
        "version: 0\nid: x",
        "version: -1\ntopic_id: 8bHAiWzVQAKqTq3mJqq5sQ",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "version: 0\ntopic_id: short",
        "version: 0\ntopic_id: +bHAiWzVQAKqTq3mJqq5s!",
    ],
)
def test_metadata_damage_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "partition.metadata"
    path.write_text(text)
    with pytest.raises(CorruptCheckpointError):
        read_topic_id(path)


@pytest.mark.parametrize("release", RELEASES)
def test_files_that_kafka_wrote(release: str, tmp_path: Path) -> None:
    folder = GOLDEN / release / "log"
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        offsets = read_offset_checkpoint(folder / name)
        assert offsets or name.startswith("log-start")
        write_offset_checkpoint(tmp_path / name, offsets)
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    for path in folder.glob("*/leader-epoch-checkpoint"):
        LeaderEpochs.read(path).write(tmp_path / "epochs")
        assert (tmp_path / "epochs").read_bytes() == path.read_bytes() or path.stat().st_size == 0
    for path in folder.glob("*/partition.metadata"):
        topic_id = read_topic_id(path)
        assert topic_id is not None
        write_topic_id(tmp_path / "metadata", topic_id)
        assert (tmp_path / "metadata").read_bytes() == path.read_bytes()
