"""Property: what is known of groups after any history of ``__consumer_offsets``, compacted or not, is what the slow model says.

`tests/interop/test_group_loading.py` has Apache Kafka say the same of such histories.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.groups.histories import NOW_MS, PLACES, PLAIN, Event, Known, Write, as_folder, events_in, known, model, random_history
from tidelog.broker.coordinators.groups.group_records import read_groups
from tidelog.clock import ManualClock
from tidelog.model import OFFSETS_TOPIC
from tidelog.reader.log_dir import LogDir
from tidelog.records.control import ControlType
from tidelog.sources.files.folder_groups import FolderGroups, batches_of


def read(folder: Path, history: list[Event]) -> Known:
    as_folder(folder, [history])
    return known(FolderGroups(str(folder)).stored())


@pytest.mark.parametrize(
    ("events", "committed"),
    [
        ([(0, 5), (PLAIN, None)], 5),  # Apache Kafka 3.9.1 says so, too.
        ([(0, 5), (PLAIN, 6)], 6),
        ([(PLAIN, 6), (0, 5)], 5),
        ([(0, 5), (0, None)], None),
        ([(PLAIN, 4), (0, None)], 4),
        ([(0, 5), (0, None), (PLAIN, None)], None),
    ],
)
def test_a_commit_in_a_transaction_and_what_comes_before_its_marker(
    events: list[tuple[int, int | None]], committed: int | None, tmp_path: Path
) -> None:
    history = [
        *(Event(producer, (Write("a", PLACES[0], offset),)) for producer, offset in events),
        Event(0, (), ControlType.COMMIT),
    ]
    found = read(tmp_path, history)
    assert found == model(history)
    assert found.committed == ({} if committed is None else {("a", PLACES[0]): committed})


def test_an_aborted_commit(tmp_path: Path) -> None:
    plain, written = Event(PLAIN, (Write("a", PLACES[0], 4),)), Event(0, (Write("a", PLACES[0], 5),))
    history = [plain, written, Event(0, (), ControlType.ABORT), Event(0, (), ControlType.COMMIT)]
    assert read(tmp_path, history) == model(history) == Known({("a", PLACES[0]): 4}, set(), set())


@given(st.integers(0, 2**32), st.lists(st.integers(1, 50), min_size=1, max_size=3), st.sets(st.integers(0, 2)))
@examples(60)
def test_random_histories(seed: int, lengths: list[int], compacted: set[int]) -> None:
    chance = random.Random(seed)
    names = [["a", "ab"], ["b", "c"], ["d"]]
    histories = [random_history(chance, groups, length) for groups, length in zip(names, lengths, strict=False)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        as_folder(folder, histories, compacted)
        groups = FolderGroups(name)
        expected = [model(events_in(folder, number)) for number in range(len(histories))]
        for number, history in enumerate(histories):
            if number not in compacted:
                assert expected[number] == model(history)
        all_known = Known({}, set(), set())
        for one in expected:
            all_known.committed.update(one.committed)
            all_known.pending.update(one.pending)
            all_known.joined.update(one.joined)
        stored = groups.stored()
        assert known(stored) == all_known
        assert {one.group for one in groups.list()} == all_known.groups
        for group in ("a", "ab", "d"):
            described = groups.describe(group, ManualClock(NOW_MS), "read_committed", 60_000)
            assert {*described.without_log} == {place for name, place in all_known.committed if name == group}
        # A broker that starts there.
        for number in range(len(histories)):
            with LogDir(name).log(OFFSETS_TOPIC, number) as log:
                loaded = read_groups(batches_of(log), NOW_MS)
            assert {(one, key): is_.offset for one in loaded for key, is_ in loaded[one].offsets.all()} == expected[
                number
            ].committed
