"""The source with time maps, without Spark: planned on the driver, pruned where the tasks are read."""

from __future__ import annotations

import logging
import os
import pickle
from pathlib import Path

import pytest

from tests.spark.golden import BASE_MS, RELEASES, expected, log_dir, rows
from tests.spark.test_bounds import offsets, parse
from tests.spark.test_options import refused
from tidelog.errors import InvalidArgumentError, NotFoundError
from tidelog.reader.log_dir import LogDir
from tidelog.reader.time_map_file import rebuild_time_map
from tidelog.spark.source import TidelogReader


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Time maps of all golden logs, with blocks of 2 KiB, in a folder for each release."""
    found = {}
    for release in RELEASES:
        found[release] = tmp_path_factory.mktemp(release)
        log_folder = LogDir(log_dir(release))
        for topic, partitions in log_folder.topics().items():
            for partition in partitions:
                with log_folder.log(topic, partition) as log:
                    for segment in log.segments:
                        rebuild_time_map(segment.log_path, found[release], block_bytes=2000)
    return found


def bytes_of(reader: TidelogReader) -> int:
    return sum(split.size_bytes for partition in reader.partitions() for split in partition.value)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("release", RELEASES)
def test_the_same_rows_from_less_of_the_log(release: str, isolation: str, maps: dict[str, Path]) -> None:
    start, end = BASE_MS + 20_000, BASE_MS + 24_000
    bounds = {"path": log_dir(release), "subscribePattern": ".*", "startTime": start, "endTime": end, "isolationLevel": isolation}
    with_maps, without = (TidelogReader(parse(**bounds, **more), 4) for more in ({"timeMapDir": maps[release]}, {}))
    wanted = [
        (row.topic, row.partition, row.offset)
        for topic in sorted(expected(release))
        for row in rows(topic, release, committed=isolation == "read_committed")
        if row.timestamp is not None and start <= row.timestamp < end
    ]
    assert wanted
    assert offsets(with_maps) == offsets(without) == wanted
    assert bytes_of(with_maps) < bytes_of(without) / 2
    for partition in pickle.loads(pickle.dumps(with_maps.partitions())):
        for split in partition.value:
            assert split.size_bytes == sum(run.size_bytes for run in split.runs)


def test_at_least_as_many_tasks_as_wanted(maps: dict[str, Path]) -> None:
    """As far as there is something to cut between, also where it lies in many runs."""
    options = {"subscribe": "v2-none-ct", "startTime": BASE_MS, "endTime": BASE_MS + 60_000, "timeMapDir": maps["kafka-3.9.1"]}
    for wanted in (1, 3, 8):
        assert len(TidelogReader(parse(**options), wanted).partitions()) >= wanted


def test_records_without_timestamp_in_what_is_left_out_are_told(maps: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    release = "kafka-2.4.1"
    without = sum(row.timestamp is None for row in rows("migrated-v0-v1-v2", release))
    end = min(row.timestamp for row in rows("migrated-v0-v1-v2", release) if row.timestamp is not None)
    reader = TidelogReader(parse(path=log_dir(release), subscribe="migrated-v0-v1-v2", endTime=end, timeMapDir=maps[release]), 1)
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        assert offsets(reader) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"migrated-v0-v1-v2: {without} records without a timestamp left out, because the scan has a time bound "
        "(in blocks that time maps rule out)"
    ]


def test_the_option_is_a_folder(tmp_path: Path) -> None:
    assert parse(subscribe="empty").time_map_dir is None
    assert parse(subscribe="empty", timeMapDir=f"file://{tmp_path}").time_map_dir == str(tmp_path)
    assert parse(subscribe="empty", timeMapDir="maps").time_map_dir == os.fspath(Path("maps").absolute())
    assert refused(timeMapDir=" ") == "option timeMapDir is empty"
    assert refused(timeMapDir="hdfs://maps").startswith("option timeMapDir: hdfs:// addresses are not supported")
    with pytest.raises(NotFoundError, match="the time map directory does not exist"):
        TidelogReader(parse(subscribe="v2-none-ct", timeMapDir=tmp_path / "nowhere"), 1).partitions()


def test_a_start_behind_its_end_is_an_error() -> None:
    """Also where only the log says: the first offset that reaches the start may lie after the end."""
    given = rows("v2-none-ct")
    times = [row.timestamp or 0 for row in given]
    start = max(times[:500])
    options = {"subscribe": "v2-none-ct", "startingTimestamp": start, "endingOffsets": '{"v2-none-ct":{"0":3}}'}
    assert times.index(start) > 3
    with pytest.raises(InvalidArgumentError, match="lies after endingOffsets, offset 3"):
        offsets(TidelogReader(parse(**options), 1))
    with pytest.raises(InvalidArgumentError):
        parse(subscribe="a", startingOffsets='{"a":{"0":5}}', endingOffsets='{"a":{"0":3}}')
