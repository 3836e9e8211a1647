"""The judge of `tests.cluster_soak`: whose fault it is that a record is there twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster_soak.judge import Double, judge_doubles
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.records import Record

PLACE = ("orders", 2)
FIRST = Producer(7, 0, 5)


def written(data: Path, *producers: Producer) -> Path:
    """A replica with a batch of each, of the same two records."""
    folder = data / "orders-2"
    folder.mkdir(parents=True)
    batches = [
        build_batch_v2(
            [Record(2 * number + index, 1, 0, None, b"%d x" % index) for index in range(2)],
            producer=producer,
            leader_epoch=number,
        )
        for number, producer in enumerate(producers)
    ]
    (folder / "00000000000000000000.log").write_bytes(b"".join(batches))
    return data


@pytest.mark.parametrize(
    ("second", "twice", "again"),
    [
        (Producer(7, 0, 5), 1, 0),
        (Producer(7, 0, 7), 1, 0),
        (Producer(8, 1, 0), 1, 0),
        (Producer(7, 1, 0), 0, 1),
    ],
    ids=["the same batch", "the next batch", "another producer", "a new epoch"],
)
def test_only_a_new_epoch_excuses_a_double(tmp_path: Path, second: Producer, twice: int, again: int) -> None:
    wrong: list[str] = []
    assert judge_doubles([Double(PLACE, 1, 1, 3)], written(tmp_path, FIRST, second), wrong) == (twice, again)
    assert len(wrong) == twice
    assert all("0..1 of leader epoch 0, producer 7 in epoch 0 from sequence 5" in one for one in wrong)


def test_an_older_epoch_excuses_nothing(tmp_path: Path) -> None:
    wrong: list[str] = []
    data = written(tmp_path, Producer(7, 1, 0), Producer(7, 0, 5))
    assert judge_doubles([Double(PLACE, 1, 1, 3)], data, wrong) == (1, 0) and len(wrong) == 1
