"""Damage to indexes in a bucket, where no header beyond a budget is read: no damage to one entry or to a file's length changes an
answer, and an answer that any other damage changes has a note.

The budget is 0 here, a MiB otherwise: so each time index entry is beyond it.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import tidelog
from tests.objects.as_objects import as_objects, object_folder
from tests.reader import hint_damage, test_hint_damage
from tests.reader.build import LogBuilder, batch
from tests.reader.hint_damage import Sample
from tests.reader.test_hint_damage import LOGS, finds, plain_finds, run
from tidelog.formats import names
from tidelog.reader import log
from tidelog.reader.log import Log

pytestmark = pytest.mark.usefixtures("as_objects")
__all__ = ["as_objects"]


class ObjectLog:
    @staticmethod
    def open(directory: Path) -> Log:
        return Log.open(object_folder(directory))


@pytest.fixture(autouse=True)
def _nothing_is_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "ELSEWHERE_BYTES", 0)
    monkeypatch.setattr(test_hint_damage, "Log", ObjectLog)


def test_a_wrong_entry_changes_no_answer(tmp_path: Path) -> None:
    for seed in range(LOGS):
        run(tmp_path, 70_000 + seed, hint_damage.single_lies)


def test_an_answer_that_a_wrong_index_changes_has_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An index of another state of the log, each of whose entries agrees with its batch and its neighbours. The rows of a scan
    may then be fewer.
    """
    believed: set[str] = set()
    for seed in range(5 * LOGS):
        rng = random.Random(seed)
        builder = LogBuilder(tmp_path / str(seed) / "t-0", interval_bytes=0)
        times = [rng.randrange(1_000) + 10 * offset for offset in range(30)]
        builder.append(*(batch(offset, [time]) for offset, time in enumerate(times))).close()
        records = list(enumerate(times))
        sample = Sample(tmp_path / str(seed), builder.directory, records, sorted(set(times)))
        path = builder.file(0, names.TIME_INDEX_SUFFIX)
        path.write_bytes(hint_damage._forge_all(path, bytearray(), builder.file(0, names.LOG_SUFFIX), rng))
        for start in rng.sample(times, 3):
            for what in ("find", "rows"):
                caplog.clear()
                if what == "find":
                    with ObjectLog.open(sample.directory) as log:
                        is_right = finds(log, [start]) == plain_finds(sample._replace(times=[start]))
                else:
                    rows = tidelog.scan(sample.data_dir, "t", start=start, columns=["offset"]).read_all().column(0).to_pylist()
                    is_right = rows == [offset for offset, time in records if time >= start]
                if not is_right:
                    notes = " ".join(record.getMessage() for record in caplog.records)
                    assert "would fetch the whole log from remote storage: from here on time index entries" in notes, (seed, what)
                    believed.add(what)
    assert believed == {"find", "rows"}
