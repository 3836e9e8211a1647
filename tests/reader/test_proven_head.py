"""What a second walk finds, from a place that an index only claims, is what the first one would have found."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.patience import PATIENCE_S
from tests.storage.partition_logs import batch
from tidelog.errors import CorruptBatchError
from tidelog.formats import walk_ahead
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.walk_ahead import WalkAhead
from tidelog.reader import proven_head
from tidelog.reader.proven_head import ProvenHead, WalkBudget
from tidelog.records.kernel import COMPILED

pytestmark = pytest.mark.skipif(not COMPILED, reason="interpreted, one walk is all")


class PatientWalk(WalkAhead):
    """One that has found all it will before it is asked."""

    def take(self, *place: int) -> object:  # type: ignore[override]
        for thread in threading.enumerate():
            if thread.name == "walk-ahead":
                thread.join(PATIENCE_S)
        return super().take(*place)


def written(path: Path, draw: random.Random) -> tuple[list[int], list[int]]:
    """Write a log; return where its batches begin, and its end, and where values hold what looks like batches.

    In some an offset is too low.
    """
    positions, nested, offset, data = [0], [], draw.randrange(3), b""
    for _ in range(draw.randrange(2, 40)):
        inner = b"".join(bytes(batch(offset + 10 + i, draw.randrange(99))) for i in range(3))
        value = draw.choice([b"v", bytes(draw.randrange(5000)), inner])
        data += bytes(batch(offset, draw.randrange(50), draw.randrange(1, 4), value=value))
        if value is inner:
            nested.append(data.index(inner, positions[-1]))
        positions.append(len(data))
        offset = max(0, offset + (draw.randrange(1, 9) if draw.random() < 0.97 else -1))
    path.write_bytes(data)
    return positions, nested


def asked(path: Path, places: list[int], claim: int | None, budget: tuple[int, int]) -> list[object]:
    """Ask for each place; with a claim, by two walks."""
    found: list[object] = []
    with ReadOnlyFile(path) as file:
        head = ProvenHead(file, 0, WalkBudget(*budget), lambda position: claim)
        for place in places:
            try:
                found.append(head.largest_before(place))
            except CorruptBatchError as error:
                found.append((error.message, error.position))
        return [*found, head.budget.batches, head.budget.bytes]


@examples(300)
@given(seed=st.integers(0, 2**32))
def test_two_walks_find_what_one_finds(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    draw = random.Random(seed)
    path = tmp_path_factory.mktemp("walk") / "00000000000000000000.log"
    positions, nested = written(path, draw)
    end = positions[-1]
    places = draw.sample(positions, min(len(positions), 3))
    if draw.random() < 0.2:
        places.append(draw.randrange(end))
    budget = (draw.choice([10**9, 10**9, end // 2]), draw.choice([10**6, 10**6, draw.randrange(1, 40)]))
    claim = draw.choice(draw.choice([positions[1:], nested or [7], [draw.randrange(end)]]))
    alone = asked(path, places, None, budget)
    for walk in (PatientWalk, WalkAhead):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(proven_head, "_SHARED_BYTES", 1)
            patch.setattr(proven_head, "_CHUNK", 1)
            patch.setattr(walk_ahead, "_CHUNK", 2)
            patch.setattr(proven_head, "_PROCESSORS", 2)
            patch.setattr(proven_head, "WalkAhead", walk)
            assert asked(path, places, claim, budget) == alone


def test_a_second_walk_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the claim is true, the first walk ends at it."""
    path = tmp_path / "00000000000000000000.log"
    data = b"".join(bytes(batch(offset, offset)) for offset in range(100))
    path.write_bytes(data)
    size = len(data) // 100
    monkeypatch.setattr(proven_head, "_SHARED_BYTES", 1)
    monkeypatch.setattr(proven_head, "_CHUNK", 1)
    monkeypatch.setattr(proven_head, "_PROCESSORS", 2)
    monkeypatch.setattr(proven_head, "WalkAhead", PatientWalk)
    walked = []
    follow = ProvenHead._follow

    def noted(self: ProvenHead, position: int, room: int) -> int:
        walked.append(self._positions[-1] // size)
        return follow(self, position, room)

    monkeypatch.setattr(ProvenHead, "_follow", noted)
    with ReadOnlyFile(path) as file:
        head = ProvenHead(file, 0, WalkBudget(), lambda position: position // size * size)
        assert head.largest_before(99 * size) == 98
    assert len(walked) == 50
    assert max(walked) < 51
