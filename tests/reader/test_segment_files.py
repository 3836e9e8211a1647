"""Which files a partition is made of, where some of them are not what Kafka leaves: an error, never fewer records in silence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import KAFKA_3, run
from tidelog.errors import CorruptBatchError, CorruptDataError, StorageError
from tidelog.formats.names import base_offset_of_log, file_name
from tidelog.model import MAX_OFFSET
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir

PLACE = "two-partitions-0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KAFKA_3 / PLACE, tmp_path / "data" / PLACE))


def last_of(folder: Path) -> Path:
    return max(folder.glob("*.log"))


@pytest.mark.parametrize(
    "name", ["157.log", "+157.log", "notes.log", f"{157:021d}.log", f"{0:020d}.bak.log", "-5.log", "157.log.swap"]
)
def test_a_name_that_is_not_kafkas(folder: Path, name: str) -> None:
    (folder / name).touch()
    with pytest.raises(
        CorruptDataError, match="the file name is not that of a segment: found " + name.replace(".", r"\.").replace("+", r"\+")
    ):
        Log.open(folder)
    for command in (["find", str(folder.parent), "two-partitions", "--at", "earliest"], ["verify", str(folder.parent)]):
        done = run(*command)
        assert done.exit_code != 0
        assert name in done.stdout + done.stderr


@pytest.mark.parametrize("offset", [0, 157, MAX_OFFSET])
def test_names_that_are(offset: int) -> None:
    assert base_offset_of_log(Path(file_name(offset, ".log"))) == offset


def test_one_that_is_out_of_range() -> None:
    with pytest.raises(CorruptDataError):
        base_offset_of_log(Path(f"{MAX_OFFSET + 1:020d}.log"))


def test_a_link_that_leads_nowhere(folder: Path, tmp_path: Path) -> None:
    """A segment on a volume that is not mounted: without checkpoints and snapshots nothing else says that it is missing."""
    last = last_of(folder)
    last.rename(tmp_path / "moved.log")
    last.symlink_to(tmp_path / "elsewhere.log")
    with pytest.raises(StorageError, match="the link to a segment is dangling"):
        Log.open(folder)
    last.unlink()
    last.symlink_to(tmp_path / "moved.log")
    with Log.open(folder) as log:
        assert log.log_end_offset == 200


def test_an_empty_segment_among_the_offsets_of_another(folder: Path) -> None:
    """Below its name lies what a log start or a range would look for in it."""
    (folder / file_name(50, ".log")).touch()
    with Log.open(folder, log_start_offset=60) as log, pytest.raises(CorruptBatchError):
        log.check_names()
    done = run("verify", str(folder.parent))
    assert done.exit_code != 0
    assert "offset" in done.stdout


def test_an_empty_swap_is_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It stands for the segment of its base, as Kafka's loader decides."""
    (folder / f"{0:020d}.log.swap").touch()
    with Log.open(folder) as log:
        assert log.log_start_offset == 0
    assert "which is not read" in caplog.text


@pytest.mark.parametrize("suffix", ["delete", "stray", "future"])
def test_an_empty_folder_of_an_earlier_topic_hides_no_missing_partition(tmp_path: Path, suffix: str) -> None:
    shutil.copytree(KAFKA_3, tmp_path / "log")
    shutil.rmtree(tmp_path / "log" / PLACE)
    (tmp_path / "log" / f"{PLACE}.0123456789abcdef0123456789abcdef-{suffix}").mkdir()
    (missing,) = LogDir(tmp_path / "log").missing_partitions("two-partitions")
    assert (missing.topic, missing.partition, missing.kind) == ("two-partitions", 0, "partition")
