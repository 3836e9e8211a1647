"""The golden and property suites of the folder reader over `s3://`, over several folders and buckets, and over `file://`.

The tests are those of `tests/reader` and `tests/sources`: only the place where they read is another.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

import tidelog
from tests.cli.conftest import run, run_ok
from tests.interop.gate import first_of
from tests.places import in_place, spread
from tests.reader import test_golden as of_reader
from tests.reader import test_properties as laws
from tests.s3 import azurite, gcs
from tests.s3.hdfs import HdfsServer
from tests.s3.server import S3Server
from tests.sources import test_golden as of_scans
from tests.sources import test_property as scans
from tests.sources.logs import ROW_COLUMNS, rows_of
from tidelog.errors import AuthenticationError, DataDirNotFoundError, SegmentChangedError, StorageError
from tidelog.formats.files import ReadOnlyFile
from tidelog.objects.address import with_options
from tidelog.objects.object_path import object_folder

pytestmark = pytest.mark.usefixtures("quiet")

SEED = 30
SAMPLE = 5
EXAMPLES = 6
KAFKA_391 = of_scans.GOLDEN / "kafka-3.9.1" / "log"

Place = Callable[[Path], Any]


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")


@pytest.fixture(scope="session")
def places(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Place]:
    """Where a folder is read instead. A golden folder is uploaded and copied once."""
    options = s3.options | {"cache_dir": str(tmp_path_factory.mktemp("cache"))}
    known: dict[tuple[str, Path], Any] = {}

    def once(name: str, make: Place) -> Place:
        def place(folder: Path) -> Any:
            if not folder.is_relative_to(of_scans.GOLDEN):
                return make(folder)
            if (name, folder) not in known:
                known[name, folder] = make(folder)
            return known[name, folder]

        return place

    def bucket(folder: Path) -> str:
        return with_options(s3.upload(folder, uuid.uuid4().hex), options)

    def folders(folder: Path) -> list[Path]:
        target = tmp_path_factory.mktemp("disks")
        return spread(folder, [target / "d1", target / "d2"])

    return {
        "s3": once("s3", bucket),
        "file": lambda folder: folder.as_uri(),
        "folders": once("folders", folders),
        "buckets": once("buckets", lambda folder: [bucket(disk) for disk in folders(folder) if any(disk.iterdir())]),
    }


PLACES = pytest.mark.parametrize("place", first_of("s3", "folders", "file", "buckets", why="s3 has more that may differ"))
SAMPLED = pytest.mark.parametrize("sample", first_of(SAMPLE, None, why="a sample of the golden partitions"))


Law = Callable[[], None]


def hold(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    """Try a property with few examples; uploads take too long to make a failing one smaller."""
    used = law._hypothesis_internal_use_settings  # type: ignore[attr-defined]
    monkeypatch.setattr(law, "_hypothesis_internal_use_settings", settings(used, max_examples=EXAMPLES, phases=[Phase.generate]))
    law()


def some(cases: list[Any], sample: int | None) -> list[Any]:
    return cases if sample is None else random.Random(SEED).sample(cases, sample)


@PLACES
@SAMPLED
def test_golden_answers(places: dict[str, Place], place: str, sample: int | None) -> None:
    cases = [case for case in of_reader.CASES if sample is None or (case.release, case.kind) == ("kafka-3.9.1", "log")]
    with in_place(places[place]):
        for case in some(cases, sample):
            of_reader.test_list_offsets(case)
            of_reader.test_ends(case)
            of_reader.test_read_committed(case)
            if case.expected.get("max_timestamp"):
                of_reader.test_max_timestamp(case)
            if of_reader.kafka_answers(case):
                of_reader.test_trace_tells_what_kafka_answers(case)


@PLACES
@SAMPLED
def test_golden_scans(places: dict[str, Place], place: str, sample: int | None) -> None:
    cases = [case for case in of_scans.partitions() if sample is None or case[0] == "kafka-3.9.1"]
    with in_place(places[place]):
        for case in some(cases, sample):
            of_scans.test_records_equal_what_a_consumer_saw(*case)
            of_scans.test_read_committed_equals_what_a_consumer_saw(*case)
            of_scans.test_ranges_are_exact(*case)
        for version in of_scans.VERSIONS if sample is None else ():
            of_scans.test_live_folders(version)


@pytest.mark.parametrize("place", first_of("s3", "file", why="s3 has more that may differ"))
@pytest.mark.parametrize(
    "law", [laws.test_find_offset_is_what_a_plain_scan_finds, laws.test_read_committed_is_what_the_markers_say]
)
def test_laws_of_the_search(places: dict[str, Place], place: str, law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_place(places[place]):
        hold(law, monkeypatch)


@PLACES
def test_random_scans(places: dict[str, Place], place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_place(places[place]):
        hold(scans.test_scan_equals_a_plain_filter, monkeypatch)


@pytest.mark.parametrize("is_local", [True, False])
def test_a_tier_in_a_bucket(s3: S3Server, is_local: bool) -> None:
    """Its options come with the address, by `config` and by -X; the data folder may be in the bucket, too."""
    golden = of_scans.GOLDEN / "tiered" / "local"
    tier = s3.upload(golden / "remote", uuid.uuid4().hex)
    data = str(golden / "data") if is_local else s3.upload(golden / "data", uuid.uuid4().hex)
    expected = [row[0] for row in json.loads((golden / "expected.json").read_text())["orders"]["rows"]]
    found = tidelog.scan(data, "orders", tier=tier, config=s3.options).read_all()
    assert found.column("offset").to_pylist() == expected
    given = [word for name, value in s3.options.items() for word in ("-X", f"{name}={value}")]
    lines = run_ok("cat", data, "orders", "--tier", tier, "--json", *given).stdout.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == expected
    here = run("verify", str(golden / "data"), "--tier", str(golden / "remote"))
    there = run("verify", data, "--tier", tier, *given)
    assert (there.exit_code, there.stdout.count("\n")) == (here.exit_code, here.stdout.count("\n"))
    assert "did you mean endpoint_url?" in run("cat", data, "orders", "--tier", tier, "-X", "endpoint_ur=x").stderr


def check_answers(address: str, options: dict[str, str]) -> None:
    """Compare the scans and the topics of an address with those of the folder that was uploaded there."""
    for topic in ("v2-none-ct", "transactions", "compacted"):
        found = tidelog.scan(address, topic, columns=ROW_COLUMNS, config=options)
        assert rows_of(found) == rows_of(tidelog.scan(KAFKA_391, topic, columns=ROW_COLUMNS))
    assert tidelog.LogDir(with_options(address, options)).topics() == tidelog.LogDir(KAFKA_391).topics()


def check_replaced(address: str, options: dict[str, str], put: Callable[[str, bytes], object]) -> None:
    """Replace an object, whose key is `live/t-0/0.log`, while it is read."""
    path = object_folder(with_options(address, options)) / "t-0" / "0.log"
    put("live/t-0/0.log", bytes(200_000))
    with ReadOnlyFile(path) as file:
        assert file.read(0, 8) == bytes(8)
        put("live/t-0/0.log", b"?" * 200_000)
        with pytest.raises(SegmentChangedError, match="overwritten"):
            file.read(100_000, 8)


@pytest.mark.skipif(azurite.why_not() is not None, reason=str(azurite.why_not()))
@pytest.mark.thorough("S3, whose requests have the same code: the tests above")
def test_azure(tmp_path: Path) -> None:
    """Azure's emulator: the folder's answers under both kinds of addresses, and one error for what is wrong."""
    with azurite.AzuriteServer(tmp_path) as server:
        options = server.options | {"cache_bytes": "0"}
        server.upload(KAFKA_391, "golden")
        for address in (
            f"az://{azurite.CONTAINER}/golden",
            f"abfs://{azurite.CONTAINER}@{azurite.ACCOUNT}.dfs.core.windows.net/golden",
        ):
            check_answers(address, options)
        check_replaced(f"az://{azurite.CONTAINER}/live", options, server.put)
        with pytest.raises(StorageError, match=r"ContainerNotFound: The specified container does not exist\. \(az://nowhere"):
            tidelog.scan("az://nowhere/x", "t", config=options)
        with pytest.raises(AuthenticationError, match="AuthorizationFailure"):
            tidelog.scan(f"az://{azurite.CONTAINER}/golden", "t", config=options | {"account_key": "AAAA"})


@pytest.mark.skipif(gcs.why_not() is not None, reason=str(gcs.why_not()))
@pytest.mark.thorough("S3, whose requests have the same code: the tests above")
def test_google(tmp_path: Path) -> None:
    """An emulator of Google Cloud Storage: the folder's answers, and one error for what is wrong."""
    with gcs.GcsServer(tmp_path) as server:
        options = server.options | {"cache_bytes": "0"}
        server.upload(KAFKA_391, "golden")
        check_answers(f"gs://{gcs.BUCKET}/golden", options)
        check_replaced(f"gs://{gcs.BUCKET}/live", options, server.put)
        with pytest.raises(StorageError, match=r"no bucket named nowhere \(gs://nowhere"):
            tidelog.scan("gs://nowhere/x", "t", config=options)


@pytest.mark.thorough("S3 and `file://`, whose paths and files have the same code; only the requests are HDFS's own")
def test_hdfs(tmp_path: Path) -> None:
    """Hadoop's own namenode and datanode: the folder's answers, and one error for what is wrong."""
    with HdfsServer(tmp_path) as server:
        options = {"cache_bytes": "0"}
        check_answers(server.upload(KAFKA_391, "data/golden"), options)
        check_replaced(f"{server.address}/live", options, server.put)
        with pytest.raises(DataDirNotFoundError):
            tidelog.scan(f"{server.address}/nowhere", "t", config=options)
    with pytest.raises(StorageError, match=r"HDFS failed: .*\(hdfs://127\.0\.0\.1:"):
        tidelog.scan(f"{server.address}/data/golden", "t", config=options)
