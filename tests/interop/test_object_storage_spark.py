"""Spark reads buckets, and the key that it is given is in nothing that a run leaves."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import tidelog
from tests.interop.test_object_storage_faults import START_MS
from tests.reader.build import LogBuilder, batch
from tests.s3.server import ACCESS_KEY, SECRET_KEY, S3Server
from tests.spark.golden import GOLDEN


def partition(folder: Path, number: int, rows: int) -> Path:
    builder = LogBuilder(folder / f"events-{number}", segment_bytes=8_000)
    for offset in range(0, rows, 10):
        builder.append(batch(offset, range(START_MS + offset, START_MS + offset + 10), value=b"x" * 90))
    builder.close()
    return folder


def test_buckets_are_read_and_keys_stay_secret(s3: S3Server, tmp_path: Path) -> None:
    s3.upload(partition(tmp_path / "a", 0, 500), "spark/a")
    s3.upload(partition(tmp_path / "b", 1, 300), "spark/b")
    golden = GOLDEN / "tiered" / "local"
    tier = s3.upload(golden / "remote", "tier")
    shutil.copytree(golden / "data", tmp_path / "replica")
    data = f"{golden / 'data'}:{tmp_path / 'replica'}"
    ran = tmp_path / "ran"
    ran.mkdir()
    with s3.front.measured() as front:
        command = [sys.executable, "-m", "tests.interop.object_storage_program", front.url, s3.url("spark"), str(ran), data, tier]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with program:
            said, logged = program.communicate(f"{ACCESS_KEY}\n{SECRET_KEY}\n", timeout=600)
        assert program.returncode == 0, logged[-4000:]
    assert "by settings 800" in said
    assert "by options 800" in said
    assert "by pattern 800" in said
    assert "streamed 800" in said
    orders = json.loads((golden / "expected.json").read_text())["orders"]["rows"]
    assert f"tiered {[row[0] for row in orders]}" in said
    assert "refused" in said
    for text in (said, logged):
        assert SECRET_KEY not in text
    files = [path for path in ran.rglob("*") if path.is_file()]
    assert any(path.is_relative_to(ran / "events") for path in files)
    assert any(path.is_relative_to(ran / "checkpoint") for path in files)
    assert not [path for path in files if SECRET_KEY.encode() in path.read_bytes()]


def test_reads_are_the_same_without_spark(s3: S3Server, tmp_path: Path) -> None:
    one, other = partition(tmp_path / "a", 0, 100), partition(tmp_path / "b", 1, 100)
    addresses = [s3.upload(one, "python/a"), s3.upload(other, "python/b")]
    here = tidelog.scan([one, other], "events").read_all()
    for address in (addresses, ",".join(addresses), s3.url("python/[ab]")):
        assert tidelog.scan(address, "events", config=s3.options).read_all() == here
