"""Where a log ends: what a crash leaves is left out and told, what a crash does not leave is an error, with every reader."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.cli.conftest import run
from tests.examples import examples
from tests.reader import build
from tests.reader.build import LogBuilder
from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.formats import names
from tidelog.formats.checkpoints import write_offset_checkpoint
from tidelog.model import TopicPartition
from tidelog.reader.segment import Segment
from tidelog.reader.segment_end import BLOCK_BYTES, SegmentEnd
from tidelog.records.batch import iter_headers
from tidelog.records.compression import Codec

COVERED_FROM = 16
"""Before that byte of a batch its checksum covers nothing: offset and leader epoch (v2) are not seen; the length is."""


def a_log(directory: Path, rng: random.Random) -> tuple[Path, int]:
    """Write a log of one segment; return its file and where its last batch begins."""
    builder = LogBuilder(directory, start_offset=rng.choice([0, 7, 70_000]), interval_bytes=rng.choice([0, 300, 1 << 20]))
    magic = rng.choice([1, 2, 2, 2])
    for _ in range(rng.randrange(2, 8)):
        codec = rng.choice([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4])
        value = rng.randbytes(rng.choice([0, 5, 40, 200, 900]))
        times = [rng.randrange(1, 1000) for _ in range(rng.randrange(1, 6))]
        builder.append(build.batch(builder.next_offset, times, magic=magic, codec=codec, value=value, epoch=rng.choice([0, 9])))
    builder.close(snapshot=False)
    path = builder.file(builder.base_offset, names.LOG_SUFFIX)
    return path, list(iter_headers(path.read_bytes()))[-1].position


def end_of(path: Path) -> SegmentEnd:
    segment = Segment.open(path)
    try:
        return segment.valid_end()
    finally:
        segment.close()


def has_block_of_zeros(data: bytes, start: int) -> bool:
    """Whether the part of the last batch in a block is zeros: then a crash may have written the others alone."""
    cuts = [start, *(at for at in range(0, len(data), BLOCK_BYTES) if at > start), len(data)]
    return any(not any(data[one:other]) for one, other in pairwise(cuts))


@examples(300)
@given(seed=st.integers(0, 2**32))
def test_a_flipped_bit_of_the_last_batch_is_an_error(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    path, start = a_log(tmp_path_factory.mktemp("log") / "t-0", rng)
    data = bytearray(path.read_bytes())
    at = rng.choice([*range(start + 8, start + 12), *(rng.randrange(start + COVERED_FROM, len(data)) for _ in range(12))])
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    try:
        end = end_of(path)
    except CorruptBatchError as error:
        assert error.position == start
        return
    assert has_block_of_zeros(bytes(data), start)
    assert end.position == start
    assert end.torn is not None


@examples(300)
@given(seed=st.integers(0, 2**32))
def test_what_a_crash_leaves_is_no_damage(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A file that is short; blocks that are zeros; a preallocated file that was written to for a while."""
    rng = random.Random(seed)
    path, start = a_log(tmp_path_factory.mktemp("log") / "t-0", rng)
    data = path.read_bytes()
    cut = rng.randrange(start, len(data) + 1)
    match rng.choice(["killed", "preallocated", "power"]):
        case "killed":
            left = data[:cut]
        case "preallocated":
            left = data[:cut] + bytes(len(data) - cut + rng.choice([1, 10, 5000]))
        case _:
            blocks = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]
            for number in range(start // BLOCK_BYTES, len(blocks)):
                if rng.random() < 0.4:
                    kept = data[number * BLOCK_BYTES : start]
                    blocks[number] = kept + bytes(len(blocks[number]) - len(kept))
            left = b"".join(blocks)[: rng.choice([len(data), cut])]
    path.write_bytes(left)
    header = list(iter_headers(data))[-1]
    end = end_of(path)
    if left.rstrip(b"\0") == data[: len(left.rstrip(b"\0"))] and left[: len(data)] == data:
        assert (end.next_offset, end.torn) == (header.next_offset, None)
    else:
        assert end.position == start
        assert (end.torn is None) == (not any(left[start:]))


def test_a_preallocated_file_that_is_trimmed_meanwhile(tmp_path: Path) -> None:
    """Its owner does that when it begins the next segment; what is cut off otherwise is no end that can be told."""
    rng = random.Random(3)
    path, start = a_log(tmp_path / "t-0", rng)
    path.with_suffix(names.INDEX_SUFFIX).unlink()
    data = path.read_bytes()
    for size in (len(data), start, start + 20):
        path.write_bytes(data + bytes(9000))
        segment = Segment.open(path)
        with path.open("r+b") as file:
            file.truncate(size)
        if size == start + 20:
            with pytest.raises(SegmentChangedError):
                segment.valid_end()
        else:
            assert segment.valid_end().position == size
            assert [header.end_position for header in segment.headers()][-1] == size
        segment.close()


def hurt(folder: Path) -> tuple[int, int]:
    """Damage the last batch of a folder with ten batches of one topic; return its offsets."""
    builder = LogBuilder(folder / "t-0")
    for number in range(10):
        builder.append(build.batch(builder.next_offset, [number * 10] * 5, value=b"\x07" * 30, epoch=0))
    builder.close(snapshot=False)
    path = builder.file(0, names.LOG_SUFFIX)
    data = bytearray(path.read_bytes())
    data[-20] ^= 4
    path.write_bytes(data)
    return 45, 50


def test_every_reader_says_so(tmp_path: Path) -> None:
    first, end = hurt(tmp_path)
    questions: list[tuple[object, ...]] = [
        *(("find", tmp_path, "t", "--at", at) for at in ("latest", "max", "1970-01-01T00:00:00.030", "2030-01-01")),
        ("cat", tmp_path, "t", "--format", "jsonl"),
        ("stat", tmp_path, "t"),
        ("retention", tmp_path, "t", "--retention", "1h"),
        ("index", "verify", tmp_path),
        ("verify", tmp_path),
    ]
    for question in questions:
        ran = run(*question)
        assert ran.exit_code in (1, 3), question
        assert "a crash does not leave such a batch" in ran.stderr + ran.stdout, question
    with pytest.raises(CorruptBatchError, match="a crash does not leave"):
        tidelog.scan(tmp_path, "t").read_all()
    with tidelog.LogDir(tmp_path).log("t", 0) as log, pytest.raises(CorruptBatchError, match="a crash does not leave"):
        tidelog.find_offset(log, 30)
    ran = run("cat", tmp_path, "t", "--format", "jsonl", "--skip-damaged")
    assert (ran.exit_code, [one["offset"] for one in ran.json_lines]) == (3, list(range(first)))
    assert f"offsets [{first}, {end}) left out, 5 records" in ran.stderr
    report = tidelog.ScanReport()
    assert tidelog.scan(tmp_path, "t", skip_damaged=True, report=report).read_all().num_rows == first
    assert [(one.first_offset, one.end_offset) for one in report.left_out] == [(first, end)]


@pytest.mark.parametrize(
    ("says", "is_missing"), [("nothing", False), ("a lower one", False), ("a higher one", True), ("a clean end", True)]
)
def test_a_torn_tail_is_told_and_missing_if_it_was_kept(says: str, is_missing: bool, tmp_path: Path) -> None:
    first, end = hurt(tmp_path)
    path = tmp_path / "t-0" / names.file_name(0, names.LOG_SUFFIX)
    size = path.stat().st_size - 30
    start = list(iter_headers(path.read_bytes()))[-1].position
    with path.open("r+b") as file:
        file.truncate(size)
    key = TopicPartition("t", 0)
    match says:
        case "a lower one" | "a higher one":
            write_offset_checkpoint(tmp_path / names.HIGH_WATERMARK_CHECKPOINT, {key: end if is_missing else first})
        case "a clean end":
            (tmp_path / names.CLEAN_SHUTDOWN_FILE).touch()
    ran = run("cat", tmp_path, "t", "--format", "jsonl")
    assert [one["offset"] for one in ran.json_lines] == list(range(first))
    assert ran.exit_code == (3 if is_missing else 0)
    assert (
        f"torn tail: {size - start} bytes after byte {start} are not a complete batch, and were skipped: "
        f"offsets from {first}, to {end - 1}" in ran.stderr
    )
    (line,) = run("stat", tmp_path, "t", "--json").json_lines[:1]
    found = [(one["kind"], one["first_offset"], one["end_offset"]) for one in line.get("missing", [])]
    assert found == ([("end", first, end)] if is_missing else [])
    told = [line["type"] for line in run("verify", tmp_path, "--json").json_lines if "torn tail" in str(line)]
    assert told == (["missing"] if says == "a clean end" else [])
