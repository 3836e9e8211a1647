"""Restores a backup at random moments, and compares each with the model."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import tidelog
from tests.backup_soak.history import History
from tests.backup_soak.model import Life, Row, allowed
from tests.backup_soak.workload import LASTING
from tidelog.backup.backup import open_backup
from tidelog.backup.manifest import PartitionEnds, Point
from tidelog.backup.verify import verify_backup
from tidelog.capture.capture import DESCRIBED_MS
from tidelog.clock import SystemClock
from tidelog.errors import TidelogError
from tidelog.model import MAX_OFFSET
from tidelog.restore.cuts import TopicCut, plan_restore
from tidelog.restore.request import RestoreRequest
from tidelog.restore.restoring import restore
from tidelog.storage.folder.folder_topics import read_topics

PARTIAL = "moments with some records but not all"
PARTIAL_SHARE = 0.9


class Checker:
    """Compares restores; `differences` are what a restore had that the model has not, or the other way round."""

    def __init__(self, made: History, folder: Path) -> None:
        self.differences: list[str] = []
        self.counts: Counter[str] = Counter()
        self._made = made
        self._folder = folder
        self._backup = open_backup(made.backup)
        self._points = [self._backup.read_point(one) for one in self._backup.points()]
        self._whole = {one.topic_id: len(one.rows(dict.fromkeys(one.logs, MAX_OFFSET))) for one in made.lives}
        self._lives = {one.topic_id: one for one in made.lives}
        for finding in verify_backup(self._backup.target).findings:
            if "no seal" not in finding.text:  # It was killed in between.
                self._differs(0, f"verify: {finding}")

    @property
    def summary(self) -> str:
        return ", ".join(f"{count:,} {what}" for what, count in self.counts.items()) + f"; {len(self.differences)} differences"

    def check(self, rng: random.Random, moments: int) -> None:
        """Restore at so many moments."""
        for number in range(moments):
            until_ms = rng.randrange(*self._made.record_times)
            try:
                self._restored(until_ms, rng)
            except (TidelogError, AssertionError) as error:
                self._differs(until_ms, f"{type(error).__name__}: {error}")
            shutil.rmtree(self._folder, ignore_errors=True)
            if number % 25 == 24:
                print(f"{number + 1}: {self.summary}", flush=True)

    def few_partial(self) -> Iterator[str]:
        """Yield a text if too few moments lay between the records' times."""
        moments, partial = self.counts["moments"], self.counts[PARTIAL]
        if partial < PARTIAL_SHARE * moments:
            yield f"only {partial} of {moments} moments restored some records but not all"

    def _differs(self, until_ms: int, text: str) -> None:
        self.differences.append(f"until {until_ms}: {text}")

    def _restored(self, until_ms: int, rng: random.Random) -> None:
        request = RestoreRequest(backup=str(self._made.backup), target=str(self._folder), until_ms=until_ms)
        plan = plan_restore(request)
        report = restore(plan, SystemClock(), work=self._folder)
        self.counts["moments"] += 1
        for text in report.differences:
            self._differs(until_ms, f"read back: {text}")
        some = [self._check_topic(topic, until_ms) for topic in plan.topics]
        self.counts[PARTIAL] += any(found for found, _ in some) and any(found < whole for found, whole in some)
        self._check_topics({topic.source for topic in plan.topics}, until_ms, plan.point)
        if not any("__consumer_offsets" in text for text in plan.point.incomplete):
            self._check_groups(report.groups, until_ms)  # type: ignore[arg-type]
        else:
            self.counts["moments without the groups' topic in their point"] += 1

    def _check_topic(self, topic: TopicCut, until_ms: int) -> tuple[int, int]:
        """Compare a topic. Return how many records were restored, and how many it had at its end; 0 if it is compacted."""
        life = self._lives[str(topic.manifest.topic_id)]
        point = next(one for one in self._points if one.sequence == topic.sequence)
        late = {text.partition(":")[0] for text in point.incomplete}
        ends: dict[int, PartitionEnds] = {one.partition: one for one in topic.entry.partitions}
        cuts = {number: min(life.cut(number, until_ms), one.stable_offset) for number, one in ends.items()}
        found = self._rows(topic.name)
        if life.is_compacted:
            self._check_state(life, found, cuts, point, until_ms)
        elif found != (wanted := life.rows(cuts)):
            odd = sorted(set(found) ^ set(wanted), key=lambda row: row[:2])[:3]
            self._differs(until_ms, f"{topic.name} of point {topic.sequence}: {len(found)} rows, {len(wanted)} expected: {odd}")
        self.counts["records"] += len(found)
        for number, one in ends.items():
            if f"{topic.source}-{number}" in late:
                self.counts["partitions that a point could not read"] += 1
                continue
            read = [sent for sent in life.sent if sent.partition == number and sent.acknowledged_ms < point.taken_ms]
            lost = [sent for sent in read if sent.offset >= one.end_offset]
            if lost:
                self._differs(
                    until_ms, f"{topic.name}-{number} of point {topic.sequence} ends at {one.end_offset}: lacks {lost[:2]}"
                )
        settings = read_topics(self._folder)[topic.name].properties
        for key, value in settings.items():
            if value not in self._settings(life, key, point):
                self._differs(until_ms, f"{topic.name}: {key}={value}, not one of {self._settings(life, key, point)}")
        self.counts["topics"] += 1
        return (0, 0) if life.is_compacted else (len(found), self._whole[life.topic_id])

    def _check_state(self, life: Life, found: list[Row], cuts: dict[int, int], point: Point, until_ms: int) -> None:
        """Each key has the value that it had, unless compaction removed that before the backup read it."""
        sent = {(one.partition, one.offset, one.timestamp, one.key, one.value) for one in life.sent}
        if not sent.issuperset(found):
            self._differs(until_ms, f"{life.name}: records that nobody sent: {sorted(set(found) - sent)[:2]}")
        state = {(partition, key): value for partition, _, _, key, value in found}
        for place, wanted in life.state(cuts).items():
            if state.get(place) == wanted.value:
                self.counts["values of keys"] += 1
            elif life.was_replaced(wanted, point.finished_ms):
                self.counts["values that compaction removed before they were read"] += 1
            else:
                self._differs(until_ms, f"{life.name} {place}: {state.get(place)!r}, not {wanted}")

    def _rows(self, topic: str) -> list[Row]:
        table = tidelog.scan(self._folder, topic, isolation="read_committed").read_all().to_pylist()
        return sorted(
            (row["partition"], row["offset"], round(row["timestamp"].timestamp() * 1000), row["key"], row["value"])
            for row in table
        )

    def _settings(self, life: Life, key: str, point: Point) -> set[str]:
        """The values that a setting may have had when the backup asked last."""
        known = [(after_ms, values[key]) for _, after_ms, values in life.settings if key in values]
        began = [(before_ms, values[key]) for before_ms, _, values in life.settings if key in values]
        since = point.taken_ms - 2 * DESCRIBED_MS
        before = [value for after_ms, value in known if after_ms <= since][-1:]
        return {*before, *(value for before_ms, value in began if since <= before_ms <= point.finished_ms)}

    def _check_topics(self, names: set[str], until_ms: int, point: Point) -> None:
        """A topic that was there in the point before the moment, and at the moment, must be restored."""
        before = [one for one in self._points if one.taken_ms < until_ms]
        for life in self._made.lives:
            was_there = before and life.created_ms < before[-1].taken_ms and not before[-1].incomplete
            if was_there and (life.deleted_ms or until_ms + 1) > until_ms and life.name not in names:
                self._differs(until_ms, f"{life.name} is not restored")

    def _check_groups(self, groups: dict[str, dict[tuple[str, int], int]], until_ms: int) -> None:
        for group, commits in self._made.commits.items():
            places = {key for one in commits for key in one.offsets or () if key[0] in LASTING}
            found = {tuple(key): offset for key, offset in groups.get(group, {}).items()}
            for key in places:
                may = allowed(commits, key, until_ms)
                if found.get(key) not in may:
                    self._differs(until_ms, f"{group} at {key}: {found.get(key)}, not one of {may}")
                self.counts["positions"] += 1
