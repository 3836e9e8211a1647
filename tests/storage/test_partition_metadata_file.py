"""partition.metadata of a log that is written (PartitionMetadataFileTest)."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tidelog.errors import CorruptCheckpointError, InconsistentTopicIdError
from tidelog.formats.partition_metadata import format_topic_id, read_topic_id
from tidelog.storage.partition.partition_metadata_file import PartitionMetadataFile

TOPIC_ID = uuid.UUID("12345678-1234-1234-1234-123456789abc")


@pytest.fixture
def file(tmp_path: Path) -> PartitionMetadataFile:
    return PartitionMetadataFile(tmp_path)


def test_set_record_with_different_topic_id(file: PartitionMetadataFile) -> None:
    """PartitionMetadataFileTest.testSetRecordWithDifferentTopicId."""
    file.record(TOPIC_ID)
    with pytest.raises(InconsistentTopicIdError, match=f"found {format_topic_id(TOPIC_ID)}"):
        file.record(uuid.UUID(int=5))
    assert file.topic_id == TOPIC_ID


def test_set_record_with_same_topic_id(file: PartitionMetadataFile) -> None:
    """PartitionMetadataFileTest.testSetRecordWithSameTopicId."""
    file.record(TOPIC_ID)
    file.record(TOPIC_ID)
    assert file.is_dirty
    file.maybe_flush()
    file.record(TOPIC_ID)
    assert not file.is_dirty


def test_maybe_flush_with_topic_id_present(file: PartitionMetadataFile) -> None:
    """PartitionMetadataFileTest.testMaybeFlushWithTopicIdPresent: exactly two lines."""
    file.record(TOPIC_ID)
    assert not file.path.exists()
    file.maybe_flush()
    assert file.path.read_text().split("\n") == ["version: 0", f"topic_id: {format_topic_id(TOPIC_ID)}"]
    before = file.path.stat().st_ino
    file.maybe_flush()
    assert file.path.stat().st_ino == before


def test_maybe_flush_with_no_topic_id_present(file: PartitionMetadataFile) -> None:
    """PartitionMetadataFileTest.testMaybeFlushWithNoTopicIdPresent: nothing is written."""
    file.maybe_flush()
    assert (file.topic_id, file.path.exists()) == (None, False)


def test_read(file: PartitionMetadataFile, tmp_path: Path) -> None:
    """PartitionMetadataFileTest.testRead."""
    file.record(TOPIC_ID)
    file.maybe_flush()
    again = PartitionMetadataFile(tmp_path)
    assert (again.topic_id, again.is_dirty, read_topic_id(again.path)) == (TOPIC_ID, False, TOPIC_ID)


def test_a_damaged_one(file: PartitionMetadataFile, tmp_path: Path) -> None:
    file.path.write_text("version: 0\n")
    with pytest.raises(CorruptCheckpointError):
        PartitionMetadataFile(tmp_path)


def test_a_folder_that_was_renamed(file: PartitionMetadataFile, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    file.record(TOPIC_ID)
    file.update_parent_dir(tmp_path / "other")
    file.maybe_flush()
    assert read_topic_id(tmp_path / "other" / "partition.metadata") == TOPIC_ID
