"""Random histories of a cluster, backed up while the backup is killed, and restored at random moments: as a plain model says.

`python -m tests.backup_soak` does the same with three brokers of Kafka and S3, which are killed, too.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.backup.model_source import ModelSource
from tests.backup.test_histories import points_of, stored
from tests.backup_soak.model import Life, batch_entries
from tests.examples import IS_SOAK, examples
from tidelog.backup.backup import open_backup
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError, NotFoundError
from tidelog.model import TopicPartition
from tidelog.restore.cuts import TopicCut, plan_restore
from tidelog.restore.request import RestoreRequest
from tidelog.restore.restoring import restore

MOMENTS = 13 if IS_SOAK else 2


@examples(40)
@given(st.integers(0, 2**32))
def test_random_moments(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    source, root = ModelSource(seed), tmp_path_factory.mktemp("backup")
    clock = ManualClock(source.now)
    taken = [point.taken_ms for point in points_of(source, root, clock)]
    random = Random(seed)
    for number in range(MOMENTS if len(taken) > 1 else 0):
        until_ms = random.randint(taken[0], taken[-1])
        folder = root / f"restored-{number}"
        try:
            plan = plan_restore(RestoreRequest(backup=str(root), target=str(folder), until_ms=until_ms))
        except (NotFoundError, InvalidArgumentError):  # There was nothing at that moment.
            continue
        assert restore(plan, clock, work=folder).differences == []
        for topic in plan.topics:
            check(root, folder, topic, until_ms)


def check(root: Path, folder: Path, topic: TopicCut, until_ms: int) -> None:
    """Compare with the batches of the topic's point, which test_histories.py compares with the cluster."""
    backup = open_backup(root)
    point = backup.point(topic.sequence)
    life = Life(topic.name, False, len(topic.entry.partitions), 0)
    cuts: dict[int, int] = {}
    for ends in topic.entry.partitions:
        batches = stored(backup, point, TopicPartition(topic.name, ends.partition)) if ends.size_bytes else []
        found = [one for batch in batches for one in batch_entries(memoryview(batch), "model")]
        life.logs[ends.partition] = [one for one in found if one.offset >= ends.log_start_offset]
        cuts[ends.partition] = min(life.cut(ends.partition, until_ms), ends.stable_offset)
    rows = tidelog.scan(folder, topic.name, isolation="read_committed").read_all().to_pylist()
    restored = [
        (row["partition"], row["offset"], round(row["timestamp"].timestamp() * 1000), row["key"], row["value"]) for row in rows
    ]
    assert sorted(restored) == life.rows(cuts), (topic.name, topic.sequence, until_ms)
