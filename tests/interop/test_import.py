"""What `tidelog import` wrote, judged by Apache Kafka 3.9.1: its dump tool, a broker that serves it, the indexes it rebuilds."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tests.interop.imports import IMPORTS, Imported, put_under
from tests.interop.rows import rows_of
from tests.kafka import Kafka391, dump_log_segments
from tests.kafka.clients import NewRow, consume, offset_for_time, offset_of_max_timestamp, produce
from tests.kafka.tools import complaints
from tests.patience import PATIENCE_S

each_import = pytest.mark.parametrize("one", IMPORTS, ids=lambda one: one.topic)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with all the imports."""
    folder = tmp_path_factory.mktemp("imported")
    for one in IMPORTS:
        one.write(folder / "data", folder / f"{one.topic}.parquet")
    return folder / "data"


@pytest.fixture(scope="module")
def serving(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka391]:
    """A broker that has been given the imported files."""
    broker = Kafka391(tmp_path_factory.mktemp("serving"))
    with broker:
        put_under(broker, data_dir, IMPORTS)
        broker.start()
        yield broker


def files(data_dir: Path, one: Imported, *suffixes: str) -> list[Path]:
    found = [path for p in range(one.partitions) for path in (data_dir / f"{one.topic}-{p}").iterdir() if path.suffix in suffixes]
    return sorted(found)


@each_import
def test_dump_log_segments_finds_no_fault(data_dir: Path, one: Imported) -> None:
    assert len(files(data_dir, one, ".log")) >= 2 * one.partitions
    dump = dump_log_segments(files(data_dir, one, ".log", ".index", ".timeindex", ".snapshot"), "--deep-iteration")
    assert complaints(dump) == []
    assert sum(line.startswith("| offset:") for line in dump.splitlines()) == one.rows
    for option in ("--verify-index-only", "--index-sanity-check"):
        checked = dump_log_segments(files(data_dir, one, ".log", ".index", ".timeindex"), option)
        assert complaints(checked) == []
        if option == "--index-sanity-check":
            assert checked.count("passed sanity check") == len(files(data_dir, one, ".index", ".timeindex"))


@each_import
def test_a_broker_serves_the_same_records(serving: Kafka391, data_dir: Path, one: Imported) -> None:
    served = [consume(serving.bootstrap, one.topic, partition) for partition in range(one.partitions)]
    for partition, rows in enumerate(served):
        assert rows == rows_of(tidelog.scan(data_dir, one.topic, partitions=[partition]))
    given = one.table()
    columns = (given.column("key").to_pylist(), given.column("value").to_pylist(), given.column("at").cast("int64").to_pylist())
    together = [(row.key, row.value, row.timestamp) for rows in served for row in rows]
    if one.partitions == 1:
        assert together == list(zip(*columns, strict=True))
    assert sorted(together, key=repr) == sorted(zip(*columns, strict=True), key=repr)


@each_import
def test_a_broker_gives_the_same_answers_by_time(serving: Kafka391, data_dir: Path, one: Imported) -> None:
    chance = random.Random(one.topic)
    for partition in range(one.partitions):
        with tidelog.LogDir(data_dir).log(one.topic, partition) as log:
            times = [row.timestamp for row in rows_of(tidelog.scan(data_dir, one.topic, partitions=[partition]))]
            near = [min(times), max(times), *chance.sample(times, 40)]
            for target in sorted({0, *(time_ms + delta for time_ms in near for delta in (-1, 0, 1))}):
                found = tidelog.find_offset(log, target)
                ours = (-1, -1) if found is None else (found.offset, found.timestamp)
                assert ours == offset_for_time(serving.admin, one.topic, partition, target), target
            largest = tidelog.find_offset(log, -3)
            assert largest is not None
            assert (largest.offset, largest.timestamp) == offset_of_max_timestamp(serving.admin, one.topic, partition)


def test_find_the_command_says_what_the_broker_says(serving: Kafka391, data_dir: Path) -> None:
    one = IMPORTS[0]
    middle = one.table().column("at").cast("int64")[one.rows // 2].as_py()
    for at in (str(middle), "max"):
        command = [sys.executable, "-m", "tidelog", "find", str(data_dir), one.topic, "--at", at, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert [answer["partition"] for answer in answers] == list(range(one.partitions))
        for answer in answers:
            place = (serving.admin, one.topic, answer["partition"])
            theirs = offset_of_max_timestamp(*place) if at == "max" else offset_for_time(*place, middle)
            assert (answer["offset"], answer["timestamp"]) == theirs


def test_nothing_is_imported_into_a_folder_that_a_broker_uses(serving: Kafka391, tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("at,value\n2020-01-01,x\n")

    def there() -> list[Path]:
        # Without what Kafka's checkpoints are written to before they get their names.
        return sorted(path for path in serving.data.iterdir() if path.suffix != ".tmp")

    before = there()
    command = [sys.executable, "-m", "tidelog", "import", str(serving.data), "more", str(source), "--timestamp", "at"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert there() == before


def test_a_broker_goes_on_writing_behind_an_import(serving: Kafka391, data_dir: Path) -> None:
    """The last test with this broker: it appends to an imported log, and the whole is still without fault."""
    one = IMPORTS[3]
    before = consume(serving.bootstrap, one.topic, 1)
    more = [NewRow(b"k%d" % n, b"more %d" % n * 9, before[-1].timestamp + n) for n in range(1000)]
    produce(serving.bootstrap, one.topic, more, 1, compression_type="lz4")
    after = consume(serving.bootstrap, one.topic, 1)
    assert after[: len(before)] == before
    assert [row.value for row in after[len(before) :]] == [row.value for row in more]
    assert rows_of(tidelog.scan(serving.data, one.topic, partitions=[1])) == after
    serving.stop()
    folder = serving.partition_folder(one.topic, 1)
    written = sorted(path for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex"))
    assert complaints(dump_log_segments(written, "--deep-iteration")) == []
    serving.start()


def test_kafka_rebuilds_the_same_indexes(data_dir: Path, tmp_path: Path) -> None:
    """A broker that finds segments without indexes after a crash rebuilds them: the same bytes as the import wrote."""
    broker = Kafka391(tmp_path)
    with broker:
        put_under(broker, data_dir, IMPORTS, suffixes=(".log",))
        (broker.data / ".kafka_cleanshutdown").unlink()
        (broker.data / "recovery-point-offset-checkpoint").unlink()
        broker.start()
    compared = 0
    for one in IMPORTS:
        for path in files(data_dir, one, ".log", ".index", ".timeindex"):
            rebuilt = broker.data / path.parent.name / path.name
            assert rebuilt.read_bytes() == path.read_bytes(), path.name
            compared += 1
        # Snapshots: Kafka writes them at the last segments' starts and at the end; where both have one, it is the same.
        both = [path for path in files(data_dir, one, ".snapshot") if (broker.data / path.parent.name / path.name).exists()]
        assert both
        assert all((broker.data / path.parent.name / path.name).read_bytes() == path.read_bytes() for path in both)
    assert compared > 100
