"""Every kind of damage to an index of Kafka 3.9.1's is found, whatever it hits: entries flipped, lost, put in, moved, cut off."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.check.verifying import INTERVAL_BYTES, golden_partitions, verified
from tests.examples import examples

ENTRY_BYTES = {".index": 8, ".timeindex": 12, ".txnindex": 34}
INDEXES = [
    path
    for folder in golden_partitions("kafka-3.9.1", "log", "live")
    if not folder.name.startswith("__")
    for path in sorted(folder.iterdir())
    if path.suffix in ENTRY_BYTES and path.stat().st_size
]

Damage = Callable[[list[bytes], int, random.Random], list[bytes]]


def flip(entries: list[bytes], at: int, chance: random.Random) -> list[bytes]:
    bit = chance.randrange(8 * len(entries[at]))
    data = bytearray(entries[at])
    data[bit // 8] ^= 1 << bit % 8
    return [*entries[:at], bytes(data), *entries[at + 1 :]]


def nudge(entries: list[bytes], at: int, chance: random.Random) -> list[bytes]:
    """Change one of an entry's numbers by a little, so that it is likely to look sound."""
    data = bytearray(entries[at])
    place = (
        chance.choice([0, 4]) if len(data) == 8 else chance.choice([4, 8]) if len(data) == 12 else chance.choice([6, 14, 22, 30])
    )
    number = int.from_bytes(data[place : place + 4], "big", signed=True) + chance.choice([-3, -2, -1, 1, 2, 3])
    data[place : place + 4] = number.to_bytes(4, "big", signed=True)
    return [*entries[:at], bytes(data), *entries[at + 1 :]]


def drop(entries: list[bytes], at: int, chance: random.Random) -> list[bytes]:
    return entries[:at] + entries[at + chance.randrange(1, 3) :]


def insert(entries: list[bytes], at: int, chance: random.Random) -> list[bytes]:
    return [*entries[:at], chance.randbytes(len(entries[0])), *entries[at:]]


def repeat(entries: list[bytes], at: int, _chance: random.Random) -> list[bytes]:
    return [*entries[:at], entries[at], *entries[at:]]


def swap(entries: list[bytes], at: int, chance: random.Random) -> list[bytes]:
    other = chance.randrange(len(entries))
    swapped = list(entries)
    swapped[at], swapped[other] = swapped[other], swapped[at]
    return swapped


def shift(entries: list[bytes], _at: int, chance: random.Random) -> list[bytes]:
    """Move everything by some bytes."""
    size = len(entries[0])
    by = chance.randrange(1, size)
    data = b"".join(entries)[by:] + bytes(by)
    return [data[i : i + size] for i in range(0, len(data), size)]


def cut(entries: list[bytes], at: int, _chance: random.Random) -> list[bytes]:
    return entries[:at]


def blank(entries: list[bytes], at: int, _chance: random.Random) -> list[bytes]:
    """Zeros from an entry on, as a disk that lost a block."""
    return entries[:at] + [bytes(len(entries[0]))] * (len(entries) - at)


KINDS: list[Damage] = [flip, nudge, drop, insert, repeat, swap, shift, cut, blank]


@given(
    index=st.sampled_from(INDEXES),
    damage=st.sampled_from(KINDS),
    place=st.floats(0, 1, exclude_max=True),
    seed=st.integers(0, 2**32),
)
@examples(150)
def test_damage_is_found(index: Path, damage: Damage, place: float, seed: int) -> None:
    size = ENTRY_BYTES[index.suffix]
    data = index.read_bytes()
    used = -(-len(data.rstrip(b"\0")) // size) * size
    entries = [data[i : i + size] for i in range(0, used, size)]
    if not entries:
        return
    is_preallocated = len(data) > used
    damaged = b"".join(damage(entries, int(place * len(entries)), random.Random(seed)))
    if is_preallocated:
        damaged = damaged.ljust(len(data), b"\0")[: len(data)]
    if damaged == data:
        return
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory) / index.parent.name
        shutil.copytree(index.parent, folder)
        (folder / index.name).write_bytes(damaged)
        one = verified(folder, INTERVAL_BYTES)
    # Zeros after the entries of the last segment are room that a running broker made, which has not yet written the entry of
    # the roll; nor, if there is nothing else, the first one.
    is_last = index.stem == max(path.stem for path in index.parent.glob("*.log"))
    written = damaged.rstrip(b"\0")
    may_be_live = len(damaged) - len(written) >= size and (not written or written == b"".join(entries[:-1]).rstrip(b"\0"))
    if is_last and index.suffix == ".timeindex" and may_be_live:
        return
    assert any(finding.is_fault or "with that record's offset" in finding.what for finding in one.findings)
    assert all(finding.path.stem in (index.stem, folder.name) for finding in one.findings if finding.is_fault)


@given(
    index=st.sampled_from([path for path in INDEXES if path.suffix == ".index" and "kafka-3.9.1/log" in str(path)]),
    numbers=st.sets(st.integers(0, 200), min_size=1, max_size=6),
)
@examples(40)
def test_an_interval_is_found_in_spite_of_damage(index: Path, numbers: set[int]) -> None:
    """Of closed segments: after the last right entry of a live index anything may be what a truncation left."""
    data = bytearray(index.read_bytes())
    if len(data) < 8 * 10:
        return
    for number in numbers:
        data[8 * number % len(data) + 5] = 0x55
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory) / index.parent.name
        shutil.copytree(index.parent, folder)
        (folder / index.name).write_bytes(data)
        one = verified(folder)
    assert one.interval_bytes == INTERVAL_BYTES
    assert one.faults
