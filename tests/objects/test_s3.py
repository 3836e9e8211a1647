"""Folders in S3Proxy, a server with S3's API: the answers of the local folder, few requests, and faults that never cost rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import run
from tests.s3.requests import Fault, error, half_body, listing, reset, short_answer
from tests.s3.server import S3Server
from tests.sources.logs import ROW_COLUMNS, rows_of
from tests.sources.test_golden import GOLDEN
from tidelog.backup.opening import point_address
from tidelog.backup.target import open_target
from tidelog.backup.verify import verify_backup
from tidelog.errors import AuthenticationError, SegmentChangedError, StorageError, TidelogError
from tidelog.formats.files import ReadOnlyFile
from tidelog.model import TopicPartition
from tidelog.objects import object_store
from tidelog.objects.address import with_options
from tidelog.objects.object_path import object_folder
from tidelog.sources.opening import open_source

pytestmark = pytest.mark.interop
LOCAL = GOLDEN / "kafka-3.9.1" / "log"
TOPICS = sorted(tidelog.LogDir(LOCAL).topics())
TOPIC = "v2-none-ct"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as running:
        running.upload(LOCAL, "golden")
        yield running


@pytest.fixture(autouse=True)
def _environment(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.front.clear()
    monkeypatch.setenv("TIDELOG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(object_store, "RETRY_S", 20)


def address(server: S3Server, prefix: str = "golden") -> str:
    return with_options(server.url(prefix), server.options)


def rows(place: object, topic: str) -> list[tuple[object, ...]]:
    return rows_of(tidelog.scan(place, topic, columns=ROW_COLUMNS))  # type: ignore[arg-type]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_bucket_answers_as_the_folder(server: S3Server, topic: str) -> None:
    place = address(server)
    assert rows(place, topic) == rows(LOCAL, topic)
    with open_source(place) as bucket, open_source(LOCAL) as folder:
        known = [TopicPartition(topic, number) for number in folder.partitions(topic)]
        assert bucket.ends(known) == folder.ends(known)
        for time in (0, 1_500_000_000_000, *(row[2] for row in rows(LOCAL, topic)[::7] if row[2] is not None)):
            targets = dict.fromkeys(known, int(str(time)))
            assert bucket.find(targets) == folder.find(targets)


def test_commands_take_a_bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its options are in the environment, in the command line, or in a file."""
    file = tmp_path / "bucket.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in server.options.items()))
    given = [text for name, value in server.options.items() for text in ("-X", f"{name}={value}")]
    limit = ["--retention", "1d"]
    for number, command in enumerate(
        (["stat"], ["verify"], ["groups", "list"], ["ls"], ["retention"], ["index", "verify"], ["sql"])
    ):
        if command == ["sql"]:
            after = [f'select count(*), max("offset") from "{TOPIC}"']
        else:  # Empty topics show the time of their file.
            after = [TOPIC, *(limit if command == ["retention"] else [])] if command[0] in ("stat", "retention") else []
        here = run(*command, str(LOCAL), *after)
        with monkeypatch.context() as patched:
            if number % 3 == 0:
                for name, value in server.environment.items():
                    patched.setenv(name, value)
            options = [[], given, ["--config", str(file)]][number % 3]
            there = run(*command, server.url("golden"), *after, *options)
        assert (there.exit_code, there.stdout.replace(server.url("golden"), str(LOCAL))) == (here.exit_code, here.stdout), command
    both = [*limit, "--config", str(file)]
    assert run("retention", server.url("golden"), TOPIC, *both).stdout == run("retention", str(LOCAL), TOPIC, *limit).stdout
    for name in ("meta.properties", "transactions-0/00000000000000000169.log", "transactions-0/00000000000000000169.timeindex"):
        there = run("dump", f"{server.url('golden')}/{name}", *given)
        assert there.stdout.replace(server.url("golden"), str(LOCAL)) == run("dump", LOCAL / name).stdout != ""


def test_a_search_asks_once_for_what_it_needs(server: S3Server) -> None:
    key = TopicPartition(TOPIC, 0)
    with server.front.measured() as front:
        for is_warm in (False, True):
            with open_source(address(server)) as source:
                front.clear()
                source.find({key: 0})
                segments = len(tidelog.LogDir(LOCAL).log(*key).segments)
                most = 1 if is_warm else 2 + 4 * segments
                assert front.count("GET", f"{TOPIC}-0/") <= most


def test_a_hundred_thousand_objects_are_listed_a_thousand_at_a_time(server: S3Server) -> None:
    with server.front.measured() as front:
        every = [(f"big/t-{number // 400}/{number % 400:020d}.log", 1 << 30) for number in range(100_000)]
        front.fail(listing(every), "LIST")
        with open_source(address(server, "big")) as source:
            assert len(source.topics()["t"]) == 250
        assert front.count() <= 110


@pytest.mark.parametrize("fault", [error(500, "InternalError"), error(503, "SlowDown"), reset, half_body, short_answer])
def test_a_passing_fault_costs_only_time(server: S3Server, fault: Fault) -> None:
    with server.front.measured() as front:
        front.fail(fault, "GET", key=".log", times=2)
        assert rows(address(server), TOPIC) == rows(LOCAL, TOPIC)


@pytest.mark.parametrize("fault", [half_body, short_answer])
def test_a_lasting_fault_is_one_error_that_names_the_object(
    server: S3Server, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "RETRY_S", 1)
    object_store_again = with_options(server.url("golden"), server.options | {"cache_bytes": "0"})
    with server.front.measured() as front:
        front.fail(fault, "GET", key=".log")
        with pytest.raises(StorageError, match=r"s3://backup/golden/.*\.log"):
            rows(object_store_again, TOPIC)


@pytest.mark.parametrize(("status", "code"), [(400, "ExpiredToken"), (403, "AccessDenied")])
def test_refused_credentials_are_an_error_at_once(server: S3Server, status: int, code: str) -> None:
    with server.front.measured() as front:
        front.fail(error(status, code), "GET", key=".log")
        with pytest.raises(AuthenticationError, match=code) as caught:
            rows(address(server), TOPIC)
        assert server.options["secret_access_key"] not in str(caught.value)
        assert front.count("GET") < 60


@pytest.mark.parametrize("change", ["replaced", "gone"])
def test_an_object_that_changes_or_vanishes_is_an_error(server: S3Server, change: str) -> None:
    server.put("live/t-0/0.log", bytes(200_000))
    path = object_folder(address(server, "live")) / "t-0" / "0.log"
    with ReadOnlyFile(path) as file:
        assert file.read(0, 8) == bytes(8)
        if change == "gone":
            server.delete("live/t-0/0.log")
        else:
            server.put("live/t-0/0.log", b"?" * 200_000)
        with pytest.raises(
            SegmentChangedError, match="deleted.*s3://backup/live/t-0/0.log" if change == "gone" else "overwritten"
        ):
            file.read(100_000, 8)


def test_a_bucket_that_is_not_there_is_one_error(server: S3Server) -> None:
    for place in ("s3://nowhere/x", server.url("other")):
        with pytest.raises(TidelogError, match=place):
            open_source(with_options(place, server.options))


def test_a_backup_in_a_bucket(server: S3Server, tmp_path: Path) -> None:
    """It is written, read with few requests and without a listing of its objects, verified, damaged, and expired there."""
    file = tmp_path / "bucket.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in server.options.items()))
    for sequence in (1, 2):
        taken = run("backup", LOCAL, server.url("backup"), "--target-config", file)
        assert f"point {sequence}, " in taken.stdout, taken.stderr
    place = address(server, "backup")
    report = verify_backup(open_target(place))
    assert (report.findings, report.points) == ([], 2)
    assert rows(place, TOPIC) == rows(LOCAL, TOPIC)
    key = TopicPartition(TOPIC, 0)
    with open_source(LOCAL) as folder:
        wanted = folder.find({key: 1_500_000_000_000})
    with server.front.measured() as front, open_source(point_address(place, None)) as bucket:
        assert bucket.find({key: 1_500_000_000_000}) == wanted
        # Head, list of points, point, catalog, topic, partition; then the search in one log.
        assert front.count("GET", "data/") <= 6
        assert front.count() - front.count("GET", "data/") <= 7, front.counts()
    assert run("cat", server.url("backup"), TOPIC, "--config", file, "--point", 1, "--count").exit_code == 0
    victim = next(key for key, _ in open_target(place).list("data"))
    data = open_target(place).get(victim)
    open_target(place).put(victim, data[:-1])
    assert [one.object.endswith(victim) for one in verify_backup(open_target(place)).findings] == [True]
    open_target(place).put(victim, data)
    expired = run("backup", "expire", server.url("backup"), "--config", file, "--keep", "0s", "--grace", "0s")
    assert expired.stdout.startswith("removed 1 point,"), expired.stderr
    assert verify_backup(open_target(place)).findings == []
    assert rows(place, TOPIC) == rows(LOCAL, TOPIC)
