"""What can go wrong with a restore: damage, full disks, kills, careless commands, and topics that are unlike others."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tidelog
from tests.cli.conftest import run, run_ok
from tests.copying.conftest import target as broker  # noqa: F401
from tests.restore.logs import NOON, TOPIC, Backed, History, history, of_model, plain
from tidelog import NewRecord
from tidelog.capture.broker_capture import BrokerCapture
from tidelog.clock import ManualClock
from tidelog.errors import TidelogError
from tidelog.restore.cuts import plan_restore
from tidelog.restore.request import RestoreRequest
from tidelog.restore.restoring import restore

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> History:
    return history(tmp_path_factory.mktemp("made"), 1)


def restored(made: History, folder: Path) -> bytes:
    """Restore, and return the bytes of the log and of its epochs."""
    plan = plan_restore(RestoreRequest(backup=str(made.backup), target=str(folder)))
    assert restore(plan, ManualClock(NOON), work=folder).differences == []
    files = [*sorted((folder / f"{TOPIC}-0").glob("*.log")), folder / f"{TOPIC}-0" / "leader-epoch-checkpoint"]
    return b"".join(path.read_bytes() for path in files)


def flip(data: bytes, random: Random) -> bytes:
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]


def test_damage_is_an_error(made: History, tmp_path: Path) -> None:
    """Of every file of records: also where no checksum of a batch reaches, as its leader epoch."""
    good = restored(made, tmp_path / "good")
    random = Random(2)
    files = sorted(path for path in (made.backup / "data").rglob("*") if path.is_file())
    needed = 0
    for number, path in enumerate(random.sample(files, min(24, len(files)))):
        data = path.read_bytes()
        how = number % 3
        if how == 0:
            path.unlink()
        else:
            changed = data[: len(data) // 2] if how == 1 else flip(data, random)
            if path.suffix == ".log" and how == 2:
                changed = data[:15] + bytes([data[15] ^ 1]) + data[16:]
            path.write_bytes(changed)
        try:
            assert restored(made, tmp_path / "damaged") == good  # The newest point has other pieces.
        except TidelogError as error:
            needed += 1
            assert f"{TOPIC}-0, offsets " in str(error)
            assert not (tmp_path / "damaged").exists()
        path.write_bytes(data)
        shutil.rmtree(tmp_path / "damaged", ignore_errors=True)
    assert needed > 8


def test_a_missing_manifest_names_the_topic(made: History, tmp_path: Path) -> None:
    for path in sorted((made.backup / "manifests").rglob("*.gz")):
        data = path.read_bytes()
        path.unlink()
        ran = run("restore", made.backup, "--to", tmp_path / "f")
        path.write_bytes(data)
        assert ran.exit_code in (0, 1)
        if ran.exit_code:
            assert "missing" in ran.stderr
        shutil.rmtree(tmp_path / "f", ignore_errors=True)


def test_a_full_disk(made: History, tmp_path: Path) -> None:
    """No file may grow over a few blocks: the error names the file, and nothing is left of the topic.

    `-B`: Python would leave its compiled modules cut off, for all tests to come.
    """
    command = f"ulimit -f 1; exec {sys.executable} -B -m tidelog restore {made.backup} --to {tmp_path / 'f'}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stderr
    assert "File too large" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not list(tmp_path.glob(f"f/{TOPIC}*"))
    run_ok("restore", made.backup, "--to", tmp_path / "f")


@pytest.mark.parametrize(
    "where",
    [
        "tidelog.storage.partition.partition_log:PartitionLog.append_as_follower",
        "tidelog.storage.topics.new_topics:_rename",
        "tidelog.storage.topics.new_topics:_checkpoint",
        "tidelog.storage.topics.new_topics:_sync",
        "tidelog.restore.restoring:claim_closed",
        "tidelog.storage.folder.closed_folder:write_clean_shutdown",
    ],
)
def test_killed_in_a_folder(made: History, tmp_path: Path, where: str) -> None:
    good = restored(made, tmp_path / "good")
    killed(where, "restore", made.backup, "--to", tmp_path / "f")
    assert restored(made, tmp_path / "f") == good
    assert not list(tmp_path.glob("f/*-delete"))


def test_killed_in_a_cluster(made: History, broker: tidelog.Broker, tmp_path: Path) -> None:  # noqa: F811
    command = ["restore", made.backup, "--to", broker.bootstrap_servers, "--work", tmp_path / "w", "--rename", f"{TOPIC}=killed"]
    for where in ("tidelog.copying.copier:OffsetMapWriter.confirm", "tidelog.restore.restoring:read_back"):
        killed(where, *command)
    assert "as in the backup" in run_ok(*command).stdout
    rows = tidelog.scan(broker.bootstrap_servers, "killed", isolation="read_committed").read_all().to_pylist()
    assert [row[1:] for row in plain(rows)] == [row[1:] for row in of_model(made.committed(made.points[-1][1]))]


def killed(where: str, *arguments: object) -> None:
    """Run a command that ends with SIGKILL when it calls a function."""
    module, _, name = where.partition(":")
    code = f"""
import importlib, os, signal, sys
owner = importlib.import_module({module!r})
*path, last = {name.split(".")!r}
for part in path: owner = getattr(owner, part)
assert hasattr(owner, last)
setattr(owner, last, lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL))
from tidelog.cli import main
sys.argv = {["tidelog", *map(str, arguments)]!r}
main()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr


def test_careless_commands(made: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    (tmp_path / "file").touch()
    to = ["--to", tmp_path / "f"]
    for arguments, text in (
        ([*to, "--until", "1970-01-02"], "no record of these topics was appended before this time"),
        ([*to, "--until", "9999-01-01"], "the backup ends before this time"),
        ([*to, "--rename", "unknown=new"], "no topic 'unknown' in the backup"),
        ([*to, "--rename", f"{TOPIC}=a/b"], "is not a valid topic name"),
        ([*to, "--topics", "x*", "--rename", f"{TOPIC}=new"], "has a new name, but is not restored"),
        ([*to, "--point", "99"], "no point 99"),
        (["--to", made.backup], "the target folder is a backup"),
        (["--to", tmp_path / "photos"], "cat.jpg"),
        (["--to", tmp_path / "file"], "file"),
        (["--to", "s3://bucket/x"], "expected a folder, or host:port"),
        (["--to", "hdfs://x/y"], "expected a folder, or host:port"),
        (["--to", f"backup:{made.backup}#1"], "expected a folder, or host:port"),
    ):
        ran = run("restore", made.backup, *arguments)
        assert (ran.exit_code, text in ran.stderr) == (1, True), ran.stderr
        assert not (tmp_path / "f").exists()
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]
    assert not list((tmp_path / "here").iterdir())


def test_a_folder_that_a_broker_holds(made: History, tmp_path: Path) -> None:
    with tidelog.Broker(data_dir=tmp_path / "held", clock=ManualClock(NOON)):
        ran = run("restore", made.backup, "--to", tmp_path / "held")
    assert ran.exit_code == 1
    assert "a running broker or another import is using this folder" in ran.stderr
    assert not (tmp_path / "held" / "tidelog-restore.json").exists()


@pytest.fixture
def backed(tmp_path: Path) -> Backed:
    return Backed(tmp_path)


def test_large_values_and_times_far_apart(backed: Backed, broker: tidelog.Broker, tmp_path: Path) -> None:  # noqa: F811
    """Values of 10 MB, over the target's limit; more than 24.8 days within a batch, which int32 milliseconds do not hold."""
    rows = [(NOON - 400 * DAY_MS, b"old", b"1"), (NOON - 300 * DAY_MS, b"large", b"x" * 10_000_000), (NOON, b"new", None)]
    log = backed.log("far")
    log.append(rows)
    log.close()
    backed.take()
    assert [row[1:] for row in backed.rows(tmp_path / "f", "far")] == rows
    assert [row[1:] for row in backed.rows(tmp_path / "t", "far", NOON - DAY_MS, order="time")] == rows[:2]
    assert [row[1:] for row in backed.rows(broker.bootstrap_servers, "far")] == rows


def test_records_that_retention_would_remove_at_once(backed: Backed, broker: tidelog.Broker, tmp_path: Path) -> None:  # noqa: F811
    log = backed.log("aged")
    log.append([(NOON, b"k", b"v")])
    log.close()
    backed.take()
    ran = run_ok("restore", backed.backup, "--to", tmp_path / "f")
    assert "aged: has records of 2013-07-10T12:00:00" in ran.stderr
    kept = ["restore", backed.backup, "--set", "retention.ms=-1", "--set", "min.insync.replicas=2"]
    ran = run_ok(*kept, "--to", broker.bootstrap_servers, "--work", tmp_path / "w")
    assert "aged: has" not in ran.stderr
    assert "topic aged: min.insync.replicas=2 was not set: the topic has only 1 replicas" in ran.stderr
    with contextlib.closing(BrokerCapture(broker.bootstrap_servers, 60_000)) as source:
        found, _ = source.settings(["aged"])
    assert found["aged"] == {"retention.ms": "-1"}


def test_empty_topics_and_tombstones(backed: Backed, tmp_path: Path) -> None:
    backed.log("empty").close()
    log = backed.log("compacted")
    log.append([(NOON, b"a", b"1"), (NOON + 1, b"b", b"2"), (NOON + 2, b"a", None), (NOON + 3, b"b", b"3")], gaps=[1])
    log.close()
    backed.clock.advance(1000)
    backed.take()
    kept = [(0, NOON, b"a", b"1"), (2, NOON + 2, b"a", None), (3, NOON + 3, b"b", b"3")]
    assert backed.rows(tmp_path / "f", "compacted") == kept
    assert plain(tidelog.scan(tmp_path / "f", "empty").read_all().to_pylist()) == []
    assert backed.rows(tmp_path / "g", "compacted", NOON + 3, topics=("compacted",)) == kept[:2]


def test_partitions_that_were_added_or_never_read(backed: Backed, tmp_path: Path) -> None:
    """Partitions keep their numbers, also if the backup lacks one between them."""
    for number, time_ms in ((0, NOON), (2, NOON + 500)):
        log = backed.log("gaps", number)
        log.append([(time_ms, b"k", b"%d" % number)])
        log.close()
    backed.clock.advance(600)
    backed.take()
    ran = run_ok("restore", backed.backup, "--to", tmp_path / "f")
    assert "gaps-1: not in the backup, the partition will be empty" in ran.stderr
    assert tidelog.scan(tmp_path / "f", "gaps").read_all().column("partition").to_pylist() == [0, 2]
    assert [row[3] for row in backed.rows(tmp_path / "g", "gaps", NOON + 100)] == [b"0"]


def test_created_again_between_points(backed: Backed, tmp_path: Path) -> None:
    """The topic that had a record at the moment is restored: the old one before it was created again, then the new one."""
    log = backed.log("again")
    log.append([(NOON - 10, b"k", b"old")])
    log.close()
    (backed.data / "again-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAQ\n")
    backed.take()
    shutil.rmtree(backed.data / "again-0")
    log = backed.log("again")
    log.append([(NOON + 500, b"k", b"new")])
    log.close()
    (backed.data / "again-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAg\n")
    backed.take()
    for until_ms, value in ((NOON + 400, b"old"), (NOON + 600, b"new"), (None, b"new")):
        assert [row[3] for row in backed.rows(tmp_path / f"{until_ms}", "again", until_ms)] == [value]
    backed.take()  # Of a topic that stays.
    command = ["restore", backed.backup, "--to", tmp_path / "f", "--dry-run", "--json"]
    for arguments, points in (
        (["--until", NOON + 400], (2, 1)),
        (["--until", NOON + 600], (2, 2)),
        (["--until", NOON + 600, "--by", "time"], (3, 3)),
        (["--until", NOON + 600, "--point", 2], (2, 2)),
        (["--until", NOON + 600, "--point", 3], (3, 3)),
        (["--until", NOON - 5, "--by", "time"], (3, 3)),  # Before the first point, which has the old topic.
        (["--until", NOON + 1500], None),
        (["--until", NOON + 1500, "--by", "time"], None),
        (["--until", NOON - 5, "--point", 1], None),
        (["--point", 1], None),
        (["--point", 3], None),
        ([], None),
    ):
        notes = [line for line in run_ok(*command, *arguments).stderr.splitlines() if "created again" in line]
        text = "note: again: deleted and created again between points 1 and {}; restored as of {}"
        assert notes == ([] if points is None else [text.format(*points)]), arguments


def test_two_topics_never_get_one_name(backed: Backed, tmp_path: Path) -> None:
    for topic in ("a", "b"):
        log = backed.log(topic)
        log.append([(NOON, b"k", topic.encode())])
        log.close()
    backed.take()
    ran = run("restore", backed.backup, "--to", tmp_path / "f", "--rename", "a=b")
    assert ran.exit_code == 1
    assert "topics 'a' and 'b' would get the same name" in ran.stderr
    swapped = ["--rename", "a=b", "--rename", "b=a"]
    run_ok("restore", backed.backup, "--to", tmp_path / "f", *swapped)
    assert [row[3] for row in plain(tidelog.scan(tmp_path / "f", "a").read_all().to_pylist())] == [b"b"]


def test_small_segments_and_batches_that_are_larger(tmp_path: Path) -> None:
    """The log takes no more than a segment at once. `segment.bytes` may have been lowered since a batch was written."""
    options: dict[str, Any] = {"log_retention_ms": -1, "log_segment_bytes": 20_000}
    source, backup, folder = tmp_path / "source", tmp_path / "backup", tmp_path / "folder"
    with tidelog.Broker(data_dir=source, **options) as running, tidelog.connect(running.bootstrap_servers) as client:
        client.produce_many(TOPIC, [NewRecord(b"x" * 3000, timestamp=NOON + at) for at in range(60)], batch_bytes=9000)
        run_ok("backup", running.bootstrap_servers, backup)
    for settings in ([], ["--set", "segment.bytes=2500"]):  # Smaller than a batch.
        run_ok("restore", backup, "--to", folder, *settings)
        logs = [b"".join(one.read_bytes() for one in sorted((at / f"{TOPIC}-0").glob("*.log"))) for at in (source, folder)]
        assert logs[0] == logs[1]
        shutil.rmtree(folder)


IMPORTS = """
import sys, threading
from importlib.abc import MetaPathFinder
from pathlib import Path
from tidelog.clock import SystemClock
from tidelog.restore.cuts import plan_restore
from tidelog.restore.request import RestoreRequest
from tidelog.restore.restoring import restore

class Watch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "pyarrow":
            print(threading.current_thread() is threading.main_thread())

assert "pyarrow" not in sys.modules
sys.meta_path.insert(0, Watch())
backup, folder = sys.argv[1:]
restore(plan_restore(RestoreRequest(backup=backup, target=folder)), SystemClock(), work=Path(folder))
"""


def test_arrow_is_not_imported_on_a_thread_that_ends(backed: Backed, tmp_path: Path) -> None:
    """Arrow 25.0 then crashes when another thread allocates memory: the next restore of the same process."""
    log = backed.log("a")
    log.append([(NOON, b"k", b"v")])
    log.close()
    backed.take()
    command = [sys.executable, "-c", IMPORTS, str(backed.backup), str(tmp_path / "f")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() == ["True"]
