"""The brokers of a pytest run: their folders, the topics that tests ask for, and the logs of failed tests.

| with `--tidelog-keep` | |
|---|---|
| a broker's folder | `tidelog-kept/<test>/<fixture>` in pytest's root |
| ... if the broker has a wider scope than a test, or is a container | `tidelog-kept/shared-<process>/<name>` |
| if a test fails | its brokers' folders are kept, and its report has the commands that show their logs |
| otherwise | the folder is removed when the broker stops |

Without the option, folders are below pytest's `tmp_path`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.errors import TidelogError
from tidelog.model import KAFKAS_TOPICS

if TYPE_CHECKING:
    import pytest

    from tidelog.broker.broker import Broker

KEPT = "tidelog-kept"
TOPICS_MARK = "tidelog_topics"


class BrokerInUse:
    """A started broker, and the fixture that provides it. A container has no fixture: any test may use it."""

    def __init__(self, broker: Broker, fixture: str | None, *, takes_topics: bool) -> None:
        self.broker = broker
        self.fixture = fixture
        self.takes_topics = takes_topics
        self.has_failed = False
        self.made: list[str] = []
        """The topics that were created for the running test. They are deleted after the test."""

    def is_used_by(self, item: pytest.Item) -> bool:
        """Return whether a test may have written to the broker."""
        return self.fixture is None or self.fixture in getattr(item, "fixturenames", ())


class BrokersOfRun:
    """The running brokers of one pytest process."""

    active: BrokersOfRun | None = None
    """This process's instance, for brokers that are not fixtures."""

    def __init__(self, kept: Path | None) -> None:
        self.kept = kept
        self._item: pytest.Item | None = None
        self._in_use: list[BrokerInUse] = []

    @contextmanager
    def started(
        self, folder: Path | None, name: str, fixture: str | None, *, test: str = "", takes_topics: bool = True, **arguments: Any
    ) -> Iterator[Broker]:
        """Run a broker for the block. Its data folder is `folder`, or a temporary folder if `folder` is None. With
        `--tidelog-keep`, its data folder belongs to `test`, and is kept if the test fails.
        """
        from tidelog.broker.broker import Broker

        is_kept = self.kept is not None and "data_dir" not in arguments
        if is_kept:
            folder = self._kept_folder(test, name)
        broker = Broker(arguments.pop("data_dir", folder), **arguments)
        used = BrokerInUse(broker, fixture, takes_topics=takes_topics)
        with broker:
            self._in_use.append(used)
            try:
                if self._item is not None:
                    self._make_topics(self._item, used)
                yield broker
            finally:
                self._in_use.remove(used)
        if is_kept and not used.has_failed:
            shutil.rmtree(broker.data_dir, ignore_errors=True)
            with suppress(OSError):  # The folder contains the data folder of another broker.
                broker.data_dir.parent.rmdir()

    def begin(self, item: pytest.Item) -> None:
        """Create a test's topics in the brokers that are already running."""
        self._item = item
        for used in self._in_use:
            if used.is_used_by(item):
                self._make_topics(item, used)

    def end(self) -> None:
        """Delete the topics of the test that has just ended."""
        self._item = None
        for used in self._in_use:
            made, used.made = used.made, []
            for topic in made:
                with suppress(TidelogError):  # The test has deleted the topic, or stopped the broker.
                    used.broker.delete_topic(topic)

    def failed(self, item: pytest.Item) -> str:
        """Keep the folders of a failed test's brokers. Return the commands that show the logs, or "" if no folder is kept."""
        if self.kept is None:
            return ""
        lines: list[str] = []
        for used in self._in_use:
            if used.is_used_by(item):
                used.has_failed = True
                lines += _commands(used.broker.data_dir)
        return "\n".join(lines)

    def _kept_folder(self, test: str, name: str) -> Path:
        assert self.kept is not None
        self.kept.mkdir(parents=True, exist_ok=True)
        (self.kept / ".gitignore").write_text("*\n", encoding="utf-8")
        shared = f"shared-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
        folder = self.kept / (re.sub(r"[^\w.\-\[\]]+", "-", test)[-120:] or shared) / name
        number = 1
        while any(used.broker.data_dir == folder for used in self._in_use):
            number += 1
            folder = folder.with_name(f"{name}-{number}")
        shutil.rmtree(folder, ignore_errors=True)  # An earlier run has kept this folder.
        return folder

    def _make_topics(self, item: pytest.Item, used: BrokerInUse) -> None:
        if not used.takes_topics:
            return
        for mark in item.iter_markers(TOPICS_MARK):
            for topic in mark.args:
                used.broker.create_topic(topic, **mark.kwargs)
                used.made.append(topic)


def _commands(folder: Path) -> Iterator[str]:
    from tidelog.reader.log_dir import LogDir

    with suppress(ValueError):
        folder = folder.relative_to(Path.cwd())
    place = shlex.quote(str(folder))
    yield f"tidelog ui {place}"
    topics: list[str] = []
    with suppress(TidelogError):  # The broker has written nothing.
        topics = [one for one in LogDir(folder).topics() if one not in KAFKAS_TOPICS]
    for topic in topics:
        yield f"tidelog cat {place} {shlex.quote(topic)}"
