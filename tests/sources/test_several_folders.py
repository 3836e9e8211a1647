"""Several folders as one log: a broker's log.dirs, and the folders of several brokers."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import run, run_ok
from tests.places import spread
from tests.reader.build import LogBuilder, batch
from tests.spark.golden import log_dir
from tidelog.errors import DataDirNotFoundError, InvalidArgumentError, UnknownTopicOrPartitionError
from tidelog.folder_list import are_several, list_folders
from tidelog.formats import names
from tidelog.formats.checkpoints import write_offset_checkpoint
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.model import TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.reader.log_dirs import LogDirs, Replica, most_complete

GOLDEN = Path(log_dir())


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The golden folder as a broker with three disks would have it; the third is new."""
    folder = tmp_path_factory.mktemp("disks")
    disks = spread(GOLDEN, [folder / "d1", folder / "d2"])
    (folder / "d3").mkdir()
    return [*disks, folder / "d3"]


def test_each_topic_reads_as_in_one_folder(disks: list[Path]) -> None:
    whole = LogDir(GOLDEN)
    several = LogDirs(disks)
    assert several.topics() == whole.topics()
    assert several.high_watermarks == whole.high_watermarks
    assert several.missing_partitions() == whole.missing_partitions()
    for topic in whole.topics():
        for start, end in ((None, None), (1_600_000_000_000, "2030-01-01")):
            got = tidelog.scan(disks, topic, start, end).read_all()
            assert got == tidelog.scan(GOLDEN, topic, start, end).read_all(), topic


@pytest.mark.parametrize("separator", [":", ","])
def test_an_address_names_several(disks: list[Path], separator: str, tmp_path: Path) -> None:
    address = separator.join(map(str, disks))
    assert list_folders(address) == disks
    properties = tmp_path / "server.properties"
    properties.write_text(f"broker.id=1\nlog.dirs={','.join(map(str, disks))}\n")
    assert list_folders(properties) == disks
    assert list_folders(str(disks[0].parent / "d*")) == disks
    assert list_folders([str(disks[0]), address]) == disks
    assert not are_several(GOLDEN)
    topic = next(iter(LogDir(GOLDEN).topics()))
    assert tidelog.scan(address, topic).read_all() == tidelog.scan(GOLDEN, topic).read_all()


def test_what_is_no_folder_is_named(disks: list[Path], tmp_path: Path) -> None:
    with pytest.raises(DataDirNotFoundError, match=rf"no such folder \({tmp_path}/nowhere\)"):
        tidelog.scan(f"{disks[0]}:{tmp_path}/nowhere", "t")
    with pytest.raises(DataDirNotFoundError, match=r"no folder matches the pattern \(.*/none-\*\)"):
        tidelog.scan(f"{tmp_path}/none-*", "t")
    with pytest.raises(DataDirNotFoundError, match="none of these folders holds a partition"):
        LogDirs([disks[2], disks[2].parent])
    empty = tmp_path / "server.properties"
    empty.write_text("broker.id=1\n")
    with pytest.raises(InvalidArgumentError, match=r"the properties file names no data folder: expected log\.dirs="):
        tidelog.scan(empty, "t")
    with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'nothing'"):
        tidelog.scan(disks, "nothing")
    several = LogDirs(disks)
    topic, partitions = next(iter(several.topics().items()))
    with pytest.raises(UnknownTopicOrPartitionError, match=f"topic '{topic}' has no partition 99, only {partitions[0]}"):
        several.log(topic, 99)


def replica(folder: Path, ends: int, epochs: list[tuple[int, int]], *, start: int = 0, high_watermark: int | None = None) -> Path:
    """Make a folder with one partition, `orders-0`, that ends at this offset; `epochs` are (epoch, its first offset)."""
    builder = LogBuilder(folder / "orders-0", start_offset=start)
    for offset in range(start, ends):
        epoch = max((epoch for epoch, first in epochs if first <= offset), default=0)
        builder.append(batch(offset, [1_700_000_000_000 + offset], epoch=epoch, value=b"%s" % folder.name.encode()))
    builder.close()
    LeaderEpochs(EpochEntry(*one) for one in epochs).write(builder.directory / names.LEADER_EPOCH_CHECKPOINT)
    if high_watermark is not None:
        write_offset_checkpoint(folder / names.HIGH_WATERMARK_CHECKPOINT, {TopicPartition("orders", 0): high_watermark})
    return folder


@pytest.mark.parametrize(
    ("replicas", "chosen"),
    [
        # A newer epoch counts more than a longer log: what the older one has more was never committed.
        ({"a": (30, [(0, 0)]), "b": (25, [(0, 0), (1, 20)])}, "b"),
        ({"a": (20, [(0, 0)]), "b": (25, [(0, 0)])}, "b"),
        # Both have what is committed; the one that retention has cut less is read.
        ({"a": (25, [(0, 0)], 5, 20), "b": (20, [(0, 0)], 0, 20)}, "b"),
        ({"a": (20, [(0, 0)]), "b": (20, [(0, 0)])}, "a"),
    ],
)
def test_the_most_complete_replica_is_read(
    tmp_path: Path,
    replicas: dict[str, tuple[int, list[tuple[int, int]], int, int]],
    chosen: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folders = []
    for name, (ends, epochs, *rest) in replicas.items():
        start, high_watermark = rest or (0, None)
        folders.append(replica(tmp_path / name, ends, epochs, start=start, high_watermark=high_watermark))
    for order in (folders, folders[::-1]) if chosen != "a" else (folders,):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            values = set(tidelog.scan(order, "orders", columns=["value"]).read_all()["value"].to_pylist())
        assert values == {chosen.encode()}
        told = [message for message in caplog.messages if "read from" in message]
        assert len(told) == (replicas["a"] != replicas["b"])
        assert all(f"read from {tmp_path / chosen} (offsets" in message for message in told)


def test_the_order_of_folders_decides_only_between_equal_replicas() -> None:
    folder = LogDir(GOLDEN)
    facts = itertools.product((0, 1), (0, 5), (10, 20), (None, 10, 20))
    made = [Replica(folder, epoch, start, end, high) for epoch, start, end, high in facts]
    for one, other in itertools.combinations(made, 2):
        assert most_complete([one, other])[1:4] == most_complete([other, one])[1:4]
        best = most_complete([one, other])
        assert best.epoch == max(one.epoch, other.epoch)


def test_an_unfinished_move_is_explained(disks: list[Path], caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    folders = [tmp_path / "d1", tmp_path / "d2"]
    replica(folders[0], 10, [(0, 0)])
    shutil.copytree(folders[0] / "orders-0", folders[1] / "orders-0.0123456789abcdef0123456789abcdef-future")
    os.remove(next((folders[1] / "orders-0.0123456789abcdef0123456789abcdef-future").glob("*.index")))  # noqa: PTH107
    with caplog.at_level(logging.WARNING):
        assert tidelog.scan(folders, "orders").read_all().num_rows == 10
    (told,) = [message for message in caplog.messages if "unfinished move" in message]
    assert told == (
        f"{folders[1]}/orders-0.0123456789abcdef0123456789abcdef-future: "
        f"an unfinished move of the partition from {folders[0]}: the copy is not read"
    )


def test_commands_take_several_folders(tmp_path: Path) -> None:
    folders = [replica(tmp_path / "d1", 10, [(0, 0)]), replica(tmp_path / "d2", 12, [(0, 0)])]
    shutil.move(tmp_path / "d2" / "orders-0", tmp_path / "d2" / "orders-1")
    address = ":".join(map(str, folders))
    assert len(run_ok("cat", address, "orders").stdout.splitlines()) == 22
    assert [
        line.split()[1:3] for line in run_ok("find", address, "orders", "--at", 1_700_000_000_005).stdout.splitlines()[1:]
    ] == [
        ["0", "5"],
        ["1", "5"],
    ]
    assert [line.split()[:2] for line in run_ok("stat", address).stdout.splitlines()[1:]] == [["orders", "0"], ["orders", "1"]]
    assert run_ok("verify", address).stdout.count("orders") == 2
    assert run_ok("verify", address, "orders").stdout.count("orders") == 2
    assert run("verify", address, "ordres").stderr == f"tidelog: no topic 'ordres' (did you mean orders?) ({address})\n"
    assert "orders-0: " in run_ok("retention", address).stdout
    assert run("serve", "--data", address).stderr.startswith(
        f"tidelog: {address} names several data folders, but a broker has only one."
    )
