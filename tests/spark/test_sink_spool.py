"""What tasks hand to the driver arrives or is missed; what nobody asks for any more goes; which epoch is a replay."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.errors import CorruptDataError, InvalidArgumentError, StorageError
from tidelog.model import TopicPartition
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.spark.sink.epochs import Epoch, is_replay, parse_epoch
from tidelog.spark.sink.spool import Spool, SpooledBatches, sweep


def batch(size: int = 1, value: bytes = b"v") -> bytearray:
    return build_batch_v2([Record(i, 1000 + i, CREATE_TIME, None, value) for i in range(size)])


def spooled(
    directory: Path, batches: list[tuple[TopicPartition, bytearray]], epoch: int | None = 7, **given: int
) -> SpooledBatches:
    with Spool(str(directory), "writer", epoch, **given) as spool:
        for key, data in batches:
            spool.add(key, data)
        return spool.finish()


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(1, 4), st.binary(max_size=50)), max_size=10),
    st.sampled_from([0, 300, 1 << 20]),
)
@examples(40)
def test_batches_arrive_in_order(
    tmp_path_factory: pytest.TempPathFactory, many: list[tuple[str, int, int, bytes]], inline: int
) -> None:
    directory = tmp_path_factory.mktemp("spool")
    batches = [(TopicPartition(topic, partition), batch(size, value)) for topic, partition, size, value in many]
    arrived: SpooledBatches = pickle.loads(pickle.dumps(spooled(directory, batches, inline_bytes=inline)))
    assert list(arrived.batches()) == batches
    assert list(arrived.batches()) == batches
    assert arrived.record_count == sum(size for _, _, size, _ in many)
    size_bytes = sum(len(data) for _, data in batches)
    assert arrived.size_bytes == size_bytes
    assert (arrived.path is not None) == (size_bytes > inline) == bool(list(directory.iterdir()))
    arrived.delete()
    arrived.delete()
    assert list(directory.iterdir()) == []


KEY = TopicPartition("a", 0)


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), Spool(str(tmp_path / "new"), "writer", 1, inline_bytes=0) as spool:
        spool.add(KEY, batch())
        assert spool.path.exists()
        raise RuntimeError
    assert list((tmp_path / "new").iterdir()) == []


def test_a_lost_file_is_one_clear_error(tmp_path: Path) -> None:
    one = spooled(tmp_path, [(KEY, batch())], inline_bytes=0)
    one.delete()
    with pytest.raises(
        StorageError, match="spool file is missing: the option spoolDir must name a folder shared by tasks and driver"
    ):
        list(one.batches())


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    one = spooled(tmp_path, [(KEY, batch()), (KEY, batch(5, b"x" * 50))], inline_bytes=0)
    assert one.path is not None
    path = Path(one.path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        if at % len(batch()) < 8 or 12 <= at % len(batch()) < 16:
            continue  # the base offset and the leader epoch, which no checksum covers and the target writes anew
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(CorruptDataError):
            list(one.batches())
    path.write_bytes(whole[:-1])
    with pytest.raises(CorruptDataError, match="is truncated"):
        list(one.batches())


def test_what_was_left_goes_with_a_later_commit(tmp_path: Path) -> None:
    left = [spooled(tmp_path, [(KEY, batch())], epoch, inline_bytes=0) for epoch in (3, 4, 5, None)]
    with Spool(str(tmp_path), "another", 1, inline_bytes=0) as others:
        others.add(KEY, batch())
        others.finish()
    sweep(str(tmp_path), "writer", 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [others.path.name, *(Path(one.path or "").name for one in left[2:])]
    )
    sweep(str(tmp_path / "nowhere"), "writer", 4)


def test_which_epoch_is_a_replay() -> None:
    epoch = Epoch("q", 7)
    assert parse_epoch(epoch.to_json()) == epoch
    assert [parse_epoch(text) for text in ("", "x", "1", "{}", '{"query": 1, "epoch": 1}', '{"query": "q", "epoch": true}')] == [
        None
    ] * 6
    assert not is_replay(None, epoch, "here")
    assert not is_replay(Epoch("another", 9), epoch, "here")
    assert not is_replay(Epoch("q", 6), epoch, "here")
    assert is_replay(epoch, epoch, "here")
    with pytest.raises(InvalidArgumentError, match=r"checkpoint is older.*found batch 7, expected batch 8 or later"):
        is_replay(Epoch("q", 8), epoch, "here")
