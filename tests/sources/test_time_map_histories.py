"""What happens to a folder between the making of its time maps and a scan: the answer is the same with maps and without.

Each history is a row of things that people and programs do to files: importing again, truncating and appending, putting a file of
the same size and the same times in another one's place, copying folders and single files to and fro. Times of files are kept
wherever a program can keep them, so that only the content and what the system itself notes can tell.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.examples import examples
from tests.reader.build import batch
from tidelog.reader.time_map_file import rebuild_time_map, time_map_path, write_time_map

T = 1_600_000_000_000
SECOND = 1000
TOPIC = "orders"
BATCHES = 12

Batch = tuple[int, tuple[int, ...]]
"""First offset, and its records' times in seconds after T; all batches of so many records are of one size."""


@dataclass
class Folder:
    """A partition's two segments as they should be, on the disk, and what was put aside."""

    path: Path
    maps: Path | None
    block_bytes: int
    segments: dict[int, list[Batch]] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    aside: list[tuple[int, list[Batch], Path]] = field(default_factory=list)
    aside_maps: list[tuple[str, bytes]] = field(default_factory=list)

    def log(self, base: int) -> Path:
        return self.path / f"{TOPIC}-0" / f"{base:020d}.log"

    def write(self, base: int, batches: list[Batch], how: str) -> None:
        """Let a segment hold batches; the file keeps its time of modification where there was one."""
        data = b"".join(batch(offset, [T + SECOND * second for second in seconds], value=b"v") for offset, seconds in batches)
        log = self.log(base)
        before = log.stat() if log.exists() else None
        if how == "renamed":
            new = log.with_suffix(".new")
            new.write_bytes(data)
            if before is not None:
                os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
            new.replace(log)
        else:
            with log.open("r+b" if before is not None else "wb") as file:
                if how == "truncated":
                    file.truncate(0)
                file.write(data)
                file.truncate()
            if before is not None:
                os.utime(log, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.put(base, batches)

    def put(self, base: int, batches: list[Batch]) -> None:
        """Note what a segment holds now, and which times came with it."""
        self.changed |= {second for one in set(batches) - set(self.segments.get(base, ())) for second in one[1]}
        self.segments[base] = batches

    def check(self, bounds: list[tuple[int | None, int | None]]) -> None:
        for start, end in bounds:
            low, high = (None if one is None else T + SECOND * one for one in (start, end))
            found = tidelog.scan(self.path, TOPIC, low, high, columns=["offset", "timestamp"], time_map_dir=self.maps).read_all()
            rows = [
                (offset + i, T + SECOND * second)
                for base in sorted(self.segments)
                for offset, seconds in self.segments[base]
                for i, second in enumerate(seconds)
                if (start is None or second >= start) and (end is None or second < end)
            ]
            times = found["timestamp"].cast("int64").to_pylist()
            assert list(zip(found["offset"].to_pylist(), times, strict=True)) == rows


def seconds(draw: st.DrawFn, near: int) -> tuple[int, int]:
    """Times of a batch: mostly in order, now and then far away."""
    first = near if draw(st.integers(0, 5)) else draw(st.integers(0, 40))
    return first, first + draw(st.integers(0, 1))


@st.composite
def contents(draw: st.DrawFn, base: int = 0) -> list[Batch]:
    count = draw(st.integers(1, BATCHES))
    return [(base + 2 * n, seconds(draw, n)) for n in range(count)]


ACTIONS = [
    *("map", "map", "map", "import again", "correct a row", "correct a row", "correct a row", "cut and append", "append"),
    *("put the log aside", "bring a log back", "put the map aside", "bring a map back", "another's map", "another's log"),
    *("flip a bit", "copy the folder", "rename to and fro", "link"),
]


def step(data: st.DataObject, folder: Folder, number: int) -> None:
    action = data.draw(st.sampled_from(ACTIONS), label="action")
    if action != "map":  # A map that is made of a changed log must know what changed.
        folder.changed.clear()
    base = data.draw(st.sampled_from(sorted(folder.segments)), label="base")
    how = data.draw(st.sampled_from(["in place", "truncated", "renamed"]), label="how")
    log, now = folder.log(base), folder.segments[base]
    path = time_map_path(log, folder.maps)
    if action == "map":
        kept = data.draw(st.integers(1, len(now)), label="covered")
        end = len(b"".join(batch(offset, [T, T], value=b"v") for offset, _ in now[:kept]))
        write_time_map(log, folder.maps, end_position=end, block_bytes=folder.block_bytes)
    elif action == "import again":
        folder.write(base, data.draw(contents(base), label="content"), how)
    elif action == "correct a row":
        n = data.draw(st.integers(0, len(now) - 1), label="batch")
        corrected = list(now)
        corrected[n] = (now[n][0], seconds(data.draw, data.draw(st.integers(0, 40))))
        folder.write(base, corrected, how)
    elif action == "cut and append":
        kept = data.draw(st.integers(0, len(now)), label="kept")
        later = [(offset, seconds(data.draw, 20)) for offset, _ in now[kept:]]
        folder.write(base, now[:kept] + later, "in place")
    elif action == "append" and len(now) < BATCHES:
        folder.write(base, [*now, (now[-1][0] + 2, seconds(data.draw, len(now)))], "in place")
    elif action == "put the log aside":
        copy = folder.path.parent / f"aside-{number}"
        shutil.copy2(log, copy)
        folder.aside.append((base, now, copy))
    elif action == "bring a log back" and folder.aside:
        base, batches, copy = data.draw(st.sampled_from(folder.aside), label="which")
        shutil.copy2(copy, folder.log(base))
        folder.put(base, batches)
    elif action == "put the map aside" and path.exists():
        folder.aside_maps.append((path.name, path.read_bytes()))
    elif action == "bring a map back" and folder.aside_maps:
        name, content = data.draw(st.sampled_from(folder.aside_maps), label="which")
        path.with_name(name).write_bytes(content)
    elif action == "another's map":
        other = folder.path.parent / "other" / f"{TOPIC}-0" / log.name
        other.parent.mkdir(parents=True, exist_ok=True)
        batches = data.draw(contents(base), label="content")
        other.write_bytes(b"".join(batch(offset, [T + SECOND * one for one in found], value=b"v") for offset, found in batches))
        shutil.copy2(log, other.with_suffix(".tmp"))
        os.utime(other, ns=(log.stat().st_atime_ns, log.stat().st_mtime_ns))
        rebuild_time_map(other, block_bytes=folder.block_bytes)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(time_map_path(other), path)
    elif action == "another's log":  # Both segments change their places: names, sizes and times are right, the content is not.
        one, two = sorted(folder.segments)
        if len(folder.segments[one]) == len(folder.segments[two]):
            shifted = [(one + offset - two, found) for offset, found in folder.segments[two]]
            folder.write(two, [(two + offset - one, found) for offset, found in folder.segments[one]], how)
            folder.write(one, shifted, how)
    elif action == "flip a bit" and path.exists():
        content = bytearray(path.read_bytes())
        bit = data.draw(st.integers(0, 8 * len(content) - 1), label="bit")
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
    elif action == "copy the folder":
        target = folder.path.with_name(f"copy-{number}")
        shutil.copytree(folder.path, target)  # Keeps the files' times, as cp -a does.
        folder.path = target
    elif action == "rename to and fro":
        log.rename(f"{log}.away").rename(log)
    elif action == "link":
        os.link(log, folder.path.parent / f"link-{number}")


@examples(100)
@given(data=st.data())
@pytest.mark.usefixtures("quiet")
def test_no_history_of_a_folder_changes_an_answer(data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        maps = data.draw(st.sampled_from([None, Path(place) / "maps"]), label="maps")
        folder = Folder(Path(place) / "data", maps, data.draw(st.sampled_from([1, 200, 65536]), label="block_bytes"))
        if maps is not None:
            maps.mkdir()
        folder.log(0).parent.mkdir(parents=True)
        for base in (0, 2 * BATCHES):
            folder.write(base, data.draw(contents(base), label="content"), "in place")
            write_time_map(folder.log(base), maps, block_bytes=folder.block_bytes)
        bound = st.one_of(st.none(), st.integers(0, 42))
        for number in range(data.draw(st.integers(2, 10), label="steps")):
            step(data, folder, number)
            ranges = data.draw(st.lists(st.tuples(bound, bound), max_size=1), label="ranges")
            folder.check([(low, high) for low, high in ranges if low is None or high is None or low <= high])
            folder.check([(one, one + 1) for one in sorted(folder.changed)[:4]])
