"""Every command and function that reads a folder says what the folder lacks. A new command is found missing here."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tidelog
from tests.cli.conftest import run
from tests.cli.incomplete import COUNT, FIRST_MS, GROUP, LOST, SILENT, TOPICS, commands, take_away, whole_folder
from tidelog.errors import IncompleteLogWarning, InvalidArgumentError
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.sources.lookups import find_offsets
from tidelog.storage.handover import topics_to_hand
from tidelog.storage.topics.topic_settings import TopicSettings

EACH_TOPIC: dict[str, tuple[str, ...]] = {
    "find": ("--at", "max"),
    "cat": (),
    "ls": (),
    "stat": (),
    "retention": (),
    "index verify": (),
    "index rebuild": ("--out", "OUT"),
}
"""Commands that take a topic, and their options."""

WHOLE_FOLDER: dict[str, tuple[str, ...]] = {
    "ls": (),
    "stat": (),
    "verify": (),
    "retention": (),
    "groups describe": (GROUP,),
    "groups lag": (),
    "index verify": (),
    "index rebuild": (),
}
ELSEWHERE = {
    "handover": "below, and tests/interop/test_handover.py",
    "restore": "tests/restore",
    "sql": "tests/cli/test_sql.py",
    "ui": "tests/web",
}


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = whole_folder(tmp_path_factory.mktemp("incomplete") / "data")
    take_away(folder)
    return folder


@pytest.fixture
def own(lacking: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(lacking, tmp_path / "data"))


def test_every_command_is_here() -> None:
    known = {*EACH_TOPIC, *WHOLE_FOLDER, *ELSEWHERE, *SILENT}
    assert {name for name in commands() if not name.startswith("job ")} == {name for name in known if not name.startswith("job ")}


@pytest.mark.parametrize("json", [(), ("--json",)])
@pytest.mark.parametrize(("name", "options"), list(WHOLE_FOLDER.items()))
def test_commands_on_a_folder(name: str, options: tuple[str, ...], json: tuple[str, ...], own: Path) -> None:
    before = contents(own)
    ran = run(*name.split(), own, *options, *json)
    assert ran.exit_code == 3, ran.stderr
    assert name == "index rebuild" or contents(own) == before  # Reading writes nothing.
    for lost in LOST if not json else ():
        assert lost in ran.stderr + ran.stdout, (lost, ran.stderr)
    if json:
        told = json_objects([line for line in ran.json_lines if "missing" in str(line)])
        assert {one.get("topic") for one in told} >= set(TOPICS)


def contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """Return every file's bytes and time of change."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(folder.rglob("*")) if path.is_file()}


def json_objects(values: object) -> list[dict[str, object]]:
    """Return the objects in JSON, also those inside others."""
    inner = values.values() if isinstance(values, dict) else values if isinstance(values, list) else ()
    own = [values] if isinstance(values, dict) else []
    return [*own, *(one for value in inner for one in json_objects(value))]


@pytest.mark.parametrize(("topic", "lost"), list(zip(TOPICS, LOST, strict=True)))
@pytest.mark.parametrize(("name", "options"), list(EACH_TOPIC.items()))
def test_commands_on_a_topic(name: str, options: tuple[str, ...], topic: str, lost: str, lacking: Path, tmp_path: Path) -> None:
    given = [str(tmp_path / "out") if option == "OUT" else option for option in options]
    ran = run(*name.split(), lacking, topic, *given)
    assert ran.exit_code == 3, ran.stderr
    assert [note for note in ran.notes if lost in note], ran.stderr
    assert not [note for note in ran.notes for other in LOST if other != lost and other in note]


def scanned(folder: Path, topic: str) -> list[str]:
    report = tidelog.ScanReport()
    tidelog.scan(folder, topic, report=report).read_all()
    assert not report.is_complete
    return [str(one) for one in report.missing]


def warned(search: Callable[[Log], object]) -> Callable[[Path, str], list[str]]:
    def find(folder: Path, topic: str) -> list[str]:
        with warnings.catch_warnings(record=True) as caught, LogDir(folder).log(topic, 0) as log:
            warnings.simplefilter("always")
            search(log)
        assert all(one.filename == __file__ for one in caught)
        return [str(one.message) for one in caught if one.category is IncompleteLogWarning]

    return find


BEHIND = FIRST_MS + COUNT * 1000
FUNCTIONS: dict[str, Callable[[Path, str], list[str]]] = {
    "scan": scanned,
    "find_offset": warned(lambda log: tidelog.find_offset(log, BEHIND)),
    "find_offsets": warned(lambda log: find_offsets(log, np.array([FIRST_MS, BEHIND]))),
    "LogDir.missing": lambda folder, topic: [str(one) for one in LogDir(folder).missing(topic)],
}


@pytest.mark.parametrize(("topic", "lost"), list(zip(TOPICS, LOST, strict=True)))
@pytest.mark.parametrize("function", list(FUNCTIONS))
def test_functions(function: str, topic: str, lost: str, lacking: Path) -> None:
    if topic == "part" and function.startswith("find_"):
        return  # They are given one partition.
    texts = FUNCTIONS[function](lacking, topic)
    assert len(texts) == 1 and lost in texts[0]


@pytest.mark.parametrize("topic", TOPICS)
def test_many_lookups_warn_of_what_could_change_an_answer(topic: str, lacking: Path) -> None:
    early = warned(lambda log: find_offsets(log, np.array([FIRST_MS, FIRST_MS + 1000])))
    assert early(lacking, topic) == []
    assert warned(lambda log: find_offsets(log, np.array([], np.int64)))(lacking, topic) == []
    assert warned(lambda log: find_offsets(log, np.array([FIRST_MS + 50_000])))(lacking, topic) == warned(
        lambda log: tidelog.find_offset(log, FIRST_MS + 50_000)
    )(lacking, topic)


def test_a_handover_of_a_topic_without_all_its_partitions_is_refused(lacking: Path) -> None:
    settings = TopicSettings(lacking)
    with pytest.raises(InvalidArgumentError, match=r"topic 'part' lacks partitions: found .* a checkpoint names 1 as well"):
        topics_to_hand(lacking, settings)
    assert [one.name for one in topics_to_hand(lacking, settings, ["middle", "end"])] == ["middle", "end"]


def test_a_broker_logs_what_its_logs_lack(own: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tidelog.Broker(own, read_only=True):
        assert "end-0: the log ends at " in caplog.text
        assert "part-1 is missing: creating it as an empty partition" in caplog.text
