"""Damaged files: the right rows, or a typed error that names a place. Never other rows, a crash, or a hang."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.examples import examples
from tests.sources.logs import ROW_COLUMNS, TOPIC, LogBuilder, Row, expected, plain, rows_of
from tidelog.errors import CorruptDataError, TidelogError
from tidelog.records.batch import iter_headers
from tidelog.records.compression import Codec

pytestmark = pytest.mark.usefixtures("quiet")

CODECS = [Codec.NONE, Codec.LZ4, Codec.GZIP, Codec.ZSTD, Codec.SNAPPY]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> LogBuilder:
    """Three segments, all formats and codecs, some transactions, no gaps."""
    builder = LogBuilder(tmp_path_factory.mktemp("sound"), segment_bytes=1 << 20, index_interval_bytes=200)
    for segment in range(3):
        if segment:
            builder.roll()
        for i in range(12):
            magic = 2 if segment == 2 else i % 3
            codec = CODECS[i % 5] if magic == 2 else CODECS[i % 3]
            records = [(100 * segment + i * 5 + j, b"key %d" % j, b"value %d" % i * 5) for j in range(6)]
            builder.append(records, magic=magic, codec=codec, headers=(("h", b"x"),))
        builder.append([(250, b"t", b"txn")] * 3, producer_id=1)
        builder.end_transaction(1, 260, commit=segment == 1)
    builder.close()
    return builder


def unprotected(log: Path) -> set[int]:
    """Bytes of a segment's last batch that no checksum covers, and no neighbour either: base offset and leader epoch."""
    last = list(iter_headers(log.read_bytes()))[-1]
    return {last.position + i for i in (*range(8), *range(12, 16))}


@examples(150)
@given(data=st.data())
def test_flipped_or_cut_bytes(sound: LogBuilder, data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        shutil.copytree(sound.directory, Path(folder) / sound.directory.name)
        directory = Path(folder) / sound.directory.name
        files = sorted(path for path in directory.iterdir() if path.stat().st_size)
        path = data.draw(st.sampled_from(files), label="file")
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1), label="at")
        if data.draw(st.booleans(), label="cut"):
            if path.suffix == ".log" and at in {header.position for header in iter_headers(content)}:
                return  # whole batches that are not there: compaction does that, too
            del content[at:]
        else:
            content[at] ^= 1 << data.draw(st.integers(0, 7), label="bit")
        in_last_log = path.name == sound.logs()[-1].name
        if in_last_log and at in unprotected(sound.logs()[-1]):
            return
        path.write_bytes(content)
        start = data.draw(st.sampled_from([None, 0, 30, 120, 215]), label="start")
        committed = data.draw(st.booleans(), label="committed")
        isolation = "read_committed" if committed else "read_uncommitted"
        last = data.draw(st.sampled_from([None, 20, 100, 151, 170, 210]), label="last")
        wanted = plain(expected(sound, start, last=last, committed=committed))
        try:
            got = rows_of(
                tidelog.scan(folder, TOPIC, columns=ROW_COLUMNS, start=start, offsets={0: (0, last)}, isolation=isolation)
            )
        except CorruptDataError as error:
            assert error.path is not None
            assert str(directory) in error.path
            return
        except TidelogError as error:
            assert error.path is not None
            return
        if in_last_log and got != wanted:
            # A damaged end is a torn append: the log ends in front of it. With its marker, a transaction is open again.
            assert got == wanted[: len(got)]
            whole = first_damaged_offset(sound.logs()[-1], at)
            assert committed or got == [row for row in wanted if row[1] < whole]
        else:
            assert got == wanted


def first_damaged_offset(log: Path, at: int) -> int:
    """The first offset of the batch, or compressed message, that the byte belongs to."""
    offset = int(log.stem)
    for header in iter_headers(log.read_bytes()):
        if header.end_position > at:
            break
        offset = header.last_offset + 1
    return offset


def test_the_log_is_worth_damaging(sound: LogBuilder) -> None:
    assert len(sound.logs()) == 3
    assert isinstance(sound.rows[0], Row)
    assert len(sound.aborted) == 2
