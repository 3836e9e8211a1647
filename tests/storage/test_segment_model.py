"""A segment against a list of batches: random appends, truncations, rolls, reopenings and full disks."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.examples import examples
from tests.storage.segment_files import (
    batch,
    full_disk,
    messages,
    open_segment,
    put,
)
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.errors import StorageError


class Written(NamedTuple):
    base_offset: int
    last_offset: int
    timestamps: tuple[int, ...]
    data: bytes


class SegmentMachine(RuleBasedStateMachine):
    """Appends, truncations, rolls, reopenings and full disks against a list of batches."""

    @initialize(interval=st.sampled_from([0, 100, 300]), room=st.sampled_from([24, 120, 4096]), preallocate=st.booleans())
    def begin(self, interval: int, room: int, preallocate: bool) -> None:
        self.folder = Path(os.environ["TIDELOG_TEST_FOLDER"])
        self.config = LogConfig(index_interval_bytes=interval, segment_index_bytes=room, segment_bytes=1 << 20)
        self.clock = ManualClock(0)
        self.model: list[Written] = []
        self.segment = open_segment(
            self.folder, 100, self.config, self.clock, init_file_size=self.config.segment_bytes, preallocate=preallocate
        )

    def next_offset(self) -> int:
        return self.model[-1].last_offset + 1 if self.model else 100

    def build(self, sets: list[list[int]], gap: int, magic: int) -> list[Written]:
        offset, built = self.next_offset() + gap, []
        for times in sets:
            if magic == 2:
                built.append(Written(offset, offset + len(times) - 1, tuple(times), batch(offset, times)))
                offset += len(times)
            for time in times if magic < 2 else ():
                built.append(
                    Written(offset, offset, (time if magic else -1,), messages(offset, "v", magic=magic, timestamp=time))
                )
                offset += 1
        return built

    sets = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=3), min_size=1, max_size=5)

    @rule(sets=sets, gap=st.integers(0, 3), magic=st.sampled_from([0, 1, 2, 2, 2]))
    def append(self, sets: list[list[int]], gap: int, magic: int) -> None:
        built = self.build(sets, gap, magic)
        put(self.segment, *(one.data for one in built))
        self.model += built

    @rule(sets=sets, room=st.integers(0, 300), only=st.sampled_from(["", ".log", ".index", ".timeindex"]))
    def append_to_a_full_disk(self, sets: list[list[int]], room: int, only: str) -> None:
        built = self.build(sets, 0, 2)
        with pytest.MonkeyPatch.context() as patched:
            full_disk(patched, room=room, only=only)
            try:
                put(self.segment, *(one.data for one in built))
            except StorageError:
                return
        self.model += built

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate_to(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(98, self.next_offset() + 2))
        self.segment.truncate_to(offset)
        self.model = list(itertools.takewhile(lambda one: one.last_offset < offset, self.model))

    @rule()
    def close_and_reopen(self) -> None:
        self.segment.close()
        data = b"".join(one.data for one in self.model)
        assert self.segment.log.path.read_bytes() == data
        self.segment = open_segment(self.folder, 100, self.config, self.clock, file_already_exists=True)
        self.segment.resize_indexes()

    @rule()
    def roll_and_take_back(self) -> None:
        self.segment.on_become_inactive()
        for path, entry_bytes in zip(self.segment.paths[1:3], (8, 12), strict=True):
            assert path.stat().st_size % entry_bytes == 0
        expected = self.largest()
        assert self.segment.time_index.last_entry == (expected if expected[0] >= 0 else (-1, 100))
        self.check()
        self.segment.truncate_to(self.next_offset())

    @rule()
    def flush(self) -> None:
        self.segment.flush()

    @rule()
    def close_idle(self) -> None:
        self.segment.close_idle()

    def largest(self) -> tuple[int, int]:
        """The largest timestamp, and the last offset of the first batch that has it."""
        best = (-1, 100)
        for one in self.model:
            if max(one.timestamps) > best[0]:
                best = (max(one.timestamps), one.last_offset)
        return best

    @invariant()
    def check(self) -> None:
        if not hasattr(self, "model"):
            return
        segment, data = self.segment, b"".join(one.data for one in self.model)
        assert segment.log.read(0, 1 << 20) == data
        assert segment.read_next_offset() == self.next_offset()
        assert segment.max_timestamp_and_offset_so_far == self.largest()
        self.check_look_ups(data)
        self.check_indexes()

    def check_look_ups(self, data: bytes) -> None:
        position, positions = 0, {}
        for one in self.model:
            positions[one.last_offset] = position
            position += len(one.data)
        for offset in range(99, self.next_offset() + 2):
            holder = next((one for one in self.model if one.last_offset >= offset), None)
            found = self.segment.translate_offset(offset)
            assert found == (None if holder is None else (holder.last_offset, positions[holder.last_offset], len(holder.data)))
        everything = [(time, one.base_offset + i) for one in self.model for i, time in enumerate(one.timestamps)]
        for timestamp in range(0, 62, 3):
            for start in (100, 103):
                expected = next((entry for entry in everything if entry[0] >= timestamp and entry[1] >= start), None)
                found_record = self.segment.find_offset_by_timestamp(timestamp, start)
                assert (found_record and found_record[:2]) == expected

    def check_indexes(self) -> None:
        """Every entry is true, and the files hold them with zeros after."""
        position, ends = 0, {}
        for one in self.model:
            ends[one.last_offset] = position
            position += len(one.data)
        index, times = self.segment.offset_index, self.segment.time_index
        entries = [index.entry(slot) for slot in range(index.entries)]
        assert all(ends[entry.offset] == entry.position for entry in entries)
        assert entries == sorted(set(entries))
        for slot in range(times.entries):
            timestamp, offset = times.entry(slot)
            assert timestamp == max(time for one in self.model if one.last_offset <= offset for time in one.timestamps)
            assert offset in ends
        for one_index in (index, times):
            raw = one_index.path.read_bytes()
            assert raw.startswith(one_index.to_bytes())
            assert not any(raw[one_index.size_bytes :])

    def teardown(self) -> None:
        if hasattr(self, "segment"):
            self.segment.delete_if_exists()


@pytest.fixture
def _folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_TEST_FOLDER", str(tmp_path_factory.mktemp("segment")))


@pytest.mark.usefixtures("_folder")
class TestSegmentModel(SegmentMachine.TestCase):
    settings = examples(60, stateful_step_count=25)
