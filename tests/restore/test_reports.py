"""Reports of a verification and of a restore: what they say, and who signed them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.cli.conftest import run, run_ok
from tests.restore.logs import TOPIC, History, history
from tidelog.model import TopicPartition
from tidelog.restore.digest import DigestTask, digest_of
from tidelog.sources.opening import open_source
from tidelog.sources.scan_plan import ALL_TIMES


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> History:
    return history(tmp_path_factory.mktemp("made"), 1)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    for name, key in (("a", ed25519.Ed25519PrivateKey.generate()), ("b", ed25519.Ed25519PrivateKey.generate())):
        (tmp_path / f"{name}.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (tmp_path / f"{name}.pub").write_bytes(public)
    return tmp_path


def test_a_restore(made: History, keys: Path) -> None:
    report = keys / "report.json"
    written = ["--report", report, "--sign-key", keys / "a.pem"]
    run_ok("restore", made.backup, "--to", keys / "f", *written)
    assert "restore of" in run_ok("backup", "check-report", report, "--public-key", keys / "a.pub").stdout
    content = json.loads(report.read_bytes())
    (partition,) = content["partitions"]
    with open_source(str(keys / "f")) as source:
        splits = source.splits(
            {TopicPartition(TOPIC, 0): (0, partition["end_offset"])}, ALL_TIMES, "read_committed", split_bytes=1 << 30
        )
        assert digest_of(DigestTask(tuple(splits), with_offsets=True)) == (partition["records"], partition["sha256"])
    assert partition["sha256"] in (keys / "report.json.html").read_text()
    again = run_ok("restore", made.backup, "--to", keys / "f", *written)  # Nothing is left to do; it is read back again.
    assert json.loads(report.read_bytes())["partitions"][0]["sha256"] == partition["sha256"], again.stdout


def test_a_verification(made: History, keys: Path) -> None:
    report = keys / "report.json"
    run_ok("backup", "verify", made.backup, "--report", report, "--sign-key", keys / "a.pem")
    run_ok("backup", "check-report", report, "--public-key", keys / "a.pub")
    assert json.loads(report.read_bytes())["differences"] == []
    damaged = keys / "backup"
    shutil.copytree(made.backup, damaged)
    next((damaged / "data").rglob("*.log")).unlink()
    assert run("backup", "verify", damaged, "--report", report).exit_code == 3
    content = json.loads(report.read_bytes())
    assert content["partitions"][0]["topic"] == TOPIC
    assert "missing" in content["differences"][0]
    assert not (keys / "report.json.sig").exists()


def test_what_is_refused(made: History, keys: Path) -> None:
    report = keys / "report.json"
    verify = ["backup", "verify", made.backup, "--report", report, "--sign-key"]
    run_ok(*verify, keys / "a.pem")
    check = ["backup", "check-report", report, "--public-key"]
    (keys / "other.pem").write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    for command, text in (
        ([*check, keys / "b.pub"], "not signed with this key"),
        ([*check, keys / "a.pem"], "not a public key"),
        ([*check, keys / "none"], "the public key does not exist"),
        ([*verify, keys / "a.pub"], "not a private key"),
        ([*verify, keys / "other.pem"], "not an Ed25519 key"),
        (["backup", "verify", made.backup, "--report", keys / "none" / "r"], "the folder of the report does not exist"),
    ):
        ran = run(*command)
        assert (ran.exit_code, text in ran.stderr) == (1, True), ran.stderr
    for path in (report, keys / "report.json.sig"):
        data = path.read_bytes()
        path.write_bytes((b"A" if data[:1] != b"A" else b"B") + data[1:])
        assert run(*check, keys / "a.pub").exit_code == 1
        path.write_bytes(data)
    assert "--sign-key needs --report" in run("backup", "verify", made.backup, "--sign-key", keys / "a.pem").stderr
