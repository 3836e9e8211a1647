"""Paths and `file:` URLs are folders; other schemes are refused, in every place that takes a folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.cli.conftest import run
from tests.spark.golden import log_dir
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError
from tidelog.folder_path import folder_path
from tidelog.objects.address import addresses_in, is_in_storage, parse
from tidelog.objects.opening import folders_at
from tidelog.reader.log_dir import LogDir
from tidelog.sources.opening import kind_of, open_source, settled
from tidelog.storage.log_manager import LogManager

FOREIGN = [
    "s4://bucket/x",
    "kafka://h:9092",
    "http://h:80",
    "file://host/x",
]


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("/a/b", "/a/b"),
        ("a", "a"),
        ("./host:9092", "host:9092"),
        ("a:b", "a:b"),
        ("file:///a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("FILE://localhost/a%20b", "/a b"),
        (Path("file:///a"), "/a"),
        ("/a%20b", "/a%20b"),
    ],
)
def test_folders(address: str | Path, path: str) -> None:
    assert folder_path(address) == Path(path)


@pytest.mark.parametrize("address", FOREIGN)
def test_other_schemes_are_refused_and_leave_nothing(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = "are not supported.*: found .* expected a data folder"
    for take in (folder_path, kind_of, open_source, settled, LogDir, tidelog.Broker, lambda one: LogManager(one, ManualClock(0))):
        with pytest.raises(InvalidArgumentError, match=said):
            take(address)
    for command in (["stat"], ["cat", "--", address, "t"], ["verify"], ["serve", "--data"], ["groups", "list"], ["format"]):
        ran = run(*command, *(() if address in command else (address,)))
        assert ran.exit_code == 1 and "are not supported" in ran.error, command
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", [5, None, object(), ["folder", 5]])
def test_what_is_no_address_is_refused(address: Any) -> None:
    for take in (open_source, lambda one: tidelog.scan(one, "orders")):
        with pytest.raises(InvalidArgumentError, match=r"the address is neither a folder nor host:port: found (5|None|<object)"):
            take(address)


def test_a_folder_whose_name_has_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is opened as `./s3:/…` only: a mistake in an address must not read or make another folder."""
    monkeypatch.chdir(tmp_path)
    Path("s3:/bucket").mkdir(parents=True)
    with pytest.raises(InvalidArgumentError, match="s3:// addresses are not supported"):
        folder_path("s3:/bucket")
    assert folder_path("./s3:/bucket") == Path("s3:/bucket")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3:/bucket/x", "did you mean s3://bucket/x?"),
        (Path("s3://bucket/x"), "did you mean s3://bucket/x?"),
        ("s3://", "the address has no bucket"),
        ("s3:///x", "did you mean s3://x?"),
        ("s3://bu cket/x", "invalid bucket name"),
        ("S33://bucket", "did you mean s3"),
        ("abfs:/c", "did you mean abfs://c?"),
        ("s3:bucket", "did you mean s3://bucket?"),
        (" s3://bucket/x", "did you mean s3://bucket/x?"),
        (
            "s3://AKIA:se/cr@et@bucket/x",
            "an address must not contain access keys: pass them as options or in the environment: found s3://***@bucket/x",
        ),
        ("s3:/AKIA:secret@bucket", "found s3:/***@bucket"),
        ("http://me:secret@host/x", "found http://***@host/x"),
    ],
)
def test_a_mistaken_address_is_one_error(address: str | Path, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:" / "bucket" / "x").mkdir(parents=True)
    for take in (kind_of, open_source, LogDir):
        with pytest.raises(InvalidArgumentError, match=re.escape(said)):
            take(address)
    for command in (["stat"], ["verify"], ["cat", "--", str(address), "t"]):
        if isinstance(address, str):
            ran = run(*command, *(() if address in command else (address,)))
            assert ran.exit_code == 1 and said in ran.error, (command, ran)


def test_a_pattern_in_another_part_than_the_last_is_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="only the last part"):
        folders_at("s3://bucket/*/x")


def test_what_looks_like_a_mistake_and_is_none() -> None:
    assert [str(parse(text)) for text in addresses_in("s3://a/x:y@z, hdfs://host:8020/a@b")] == [
        "s3://a/x:y@z",
        "hdfs://host:8020/a@b",
    ]
    for brokers in ("gs:9092", "s3:9092,hdfs:9092"):
        assert not is_in_storage(brokers)


def test_urls_of_files_are_read(tmp_path: Path) -> None:
    url = Path(log_dir()).absolute().as_uri()
    assert LogDir(url).topics() == LogDir(log_dir()).topics()
    with open_source(url) as source:
        assert source.topics() == LogDir(log_dir()).topics()
    assert settled(url) == str(Path(log_dir()).absolute())
    assert run("stat", url).stdout == run("stat", log_dir()).stdout
    with tidelog.Broker(f"file://{tmp_path}/data"):
        assert (tmp_path / "data" / "meta.properties").exists()
