"""Backups that another release or program wrote, with checksums that are right: one error of Tidelog's, never one of Python's."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import run
from tests.restore.logs import history
from tidelog.backup.backup import open_backup
from tidelog.backup.layout import HEAD, Seal, manifest_key
from tidelog.backup.manifest import checksum_of
from tidelog.backup.target import open_target
from tidelog.backup.verify import verify_backup

LEVELS = ("point", "catalog", "topic", "partition")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return history(tmp_path_factory.mktemp("made"), 5).backup


class Rewriter:
    """Changes one manifest of a copy of a backup, and every checksum above it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = sorted((root / "points").iterdir())[-1]
        self.point = json.loads(self.path.read_bytes())
        self.catalog = self._read(self.point["catalog"])
        self.topic = self._read(self.catalog["topics"][0]["sha256"])
        self.partition = self._read(self.topic["partitions"]["0"])

    def write(self) -> None:
        self.topic["partitions"] = self._under(self.topic.get("partitions"), "0", self._put(self.partition))
        topics = self.catalog.get("topics")
        first = topics[0] if isinstance(topics, list) and topics else None
        self._under(first, "sha256", self._put(self.topic))
        self._under(self.point, "catalog", self._put(self.catalog))
        self.point.pop("checksum", None)
        data = json.dumps({**self.point, "checksum": checksum_of(self.point)}).encode()
        self.path.write_bytes(data)
        number = int(self.path.name.partition("-")[0])
        for seal in (self.root / "seals").glob(f"{number:08d}-*"):
            seal.unlink()
        sha256 = hashlib.sha256(data).hexdigest()
        (self.root / Seal(number, sha256).key).write_bytes(sha256.encode())

    def _read(self, sha256: str) -> Any:
        return json.loads(gzip.decompress((self.root / manifest_key(sha256)).read_bytes()))

    def _put(self, content: Any) -> str:
        data = gzip.compress(json.dumps(content).encode())
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.root / manifest_key(sha256)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return sha256

    @staticmethod
    def _under(content: Any, name: str, sha256: str) -> Any:
        if isinstance(content, dict) and isinstance(content.get(name), str):
            content[name] = sha256
        return content


def readings(root: Path, tmp_path: Path) -> list[Callable[[], Any]]:
    into = tmp_path / "restored"
    return [
        lambda: run("backup", "list", root),
        lambda: run("backup", "show", root),
        lambda: run("backup", "expire", root, "--keep", "1d", "--dry-run"),
        lambda: run("restore", root, "--to", into, "--dry-run"),
        lambda: run("cat", root, "t", "-n", 1),
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_manifests_with_other_fields(made: Path, tmp_path: Path, level: str) -> None:
    for case, name in enumerate(sorted({*getattr(Rewriter(made), level)} - {"checksum"})):
        for number, value in enumerate(("gone", None, 7.5, [[None]])):
            root = tmp_path / f"{case}-{number}"
            shutil.copytree(made, root)
            changed = Rewriter(root)
            fields = getattr(changed, level)
            if value == fields[name]:
                continue
            fields[name] = value
            if value == "gone":
                del fields[name]
            changed.write()
            # None is right for some.
            assert verify_backup(open_target(str(root)), threads=1).findings or value is None, (level, name, value)
            if number == case % 4:
                for ran in [one() for one in readings(root, tmp_path)]:
                    assert ran.exit_code in (0, 1, 3), (level, name, value, ran)
                    assert "Traceback" not in ran.stderr, (level, name, value)
            shutil.rmtree(root)


def test_an_older_version_and_another_program_are_named(made: Path, tmp_path: Path) -> None:
    root = tmp_path / "old"
    shutil.copytree(made, root)
    head = json.loads((root / HEAD).read_bytes())
    head.pop("checksum")
    head["version"] = 0
    (root / HEAD).write_text(json.dumps({**head, "checksum": checksum_of(head)}))
    ran = run("backup", "show", root)
    assert ran.exit_code == 1
    assert "version" in ran.stderr
    assert "found 0" in ran.stderr.replace(":", "")
    other = tmp_path / "other"
    (other / "topics" / "orders").mkdir(parents=True)
    (other / "manifest.json").write_text("{}")
    ran = run("restore", other, "--to", tmp_path / "restored")
    assert ran.exit_code == 1
    assert "no backup here" in ran.stderr
    assert open_backup(made).point()
