"""`tidelog handover DIR --to KAFKA_DATA_DIR --bootstrap-server HOST:PORT`: hands topics over to Apache Kafka.

The topics are created while Kafka runs; after Kafka has been stopped, the partitions are put in place (`storage.handover`).
Intermediate results are stored in the source folder, in ``tidelog-handover.json``, so that the command can be run again at any
time.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import click

from tidelog.cli.client_options import reached_by
from tidelog.cli.kafka_admin import KafkaAdmin
from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import (
    broker_config_option,
    broker_properties,
    directory_argument,
    duration_ms,
    json_option,
    note_kafkas_since,
)
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, one_line, show_bytes_size
from tidelog.cli.printing.missing import end_with_missing, report_missing
from tidelog.cli.printing.output import print_lines
from tidelog.cli.printing.progress_bar import ProgressBar
from tidelog.clock import SystemClock
from tidelog.config import LogConfig
from tidelog.errors import DataDirNotFoundError, InvalidArgumentError, StorageError
from tidelog.formats import names
from tidelog.formats.dir_lock import DirLock
from tidelog.formats.json_files import read_json, understanding, write_json
from tidelog.formats.partition_metadata import format_topic_id, parse_topic_id
from tidelog.model import TRANSACTIONS_TOPIC
from tidelog.reader.log_dir import LogDir
from tidelog.storage.folder.meta_properties import read_meta_properties
from tidelog.storage.handover import Deletion, TopicToHand, deletions, place, recover, topics_to_hand
from tidelog.storage.topics.topic_settings import DELETING, TopicSettings, stricter_settings

NOTES_FILE = "tidelog-handover.json"
VERSION = 1
_WHAT = "the notes of an earlier handover"
POLL_S = 0.25
_SHOWN_NAMES = 5


@click.command()
@directory_argument
@click.option(
    "--to", "target", metavar="KAFKA_DATA_DIR", required=True, type=LocalPath(), help="The log.dir of the Kafka broker."
)
@click.option(
    "--bootstrap-server",
    metavar="HOST:PORT",
    required=True,
    callback=reached_by("bootstrap-server"),
    help="The Kafka broker that takes over; it must be running.",
)
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic; may be repeated. [default: all]")
@click.option("--with-groups", is_flag=True, help="Also hand over consumer groups and transactions (internal topics).")
@broker_config_option
@click.option(
    "--carry-settings",
    is_flag=True,
    help="Change the settings of topics already in Kafka if they would delete more than DIR's settings.",
)
@click.option("--allow-deletion", is_flag=True, help="Continue even if Kafka will delete records that DIR keeps.")
@click.option("--timeout", metavar="TIME", default="10m", show_default=True, help="How long to wait for Kafka to stop.")
@json_option
def command(
    directory: str,
    target: str,
    bootstrap_server: str,
    topics: tuple[str, ...],
    with_groups: bool,
    config: Path | None,
    carry_settings: bool,
    allow_deletion: bool,
    timeout: str,
    as_json: bool,
) -> None:
    """Hand topics over to Apache Kafka (KRaft, one broker): their partitions are copied into its log.dir.

    First, while Kafka runs, the command creates the topics with its admin API. Then stop Kafka: the command waits for Kafka
    to stop, and copies the partitions. After that, start Kafka again. The records in DIR stay. Records that are missing from DIR
    are listed first; the exit code is then 3. If the command is interrupted, run it again: it continues.

    Kafka gets the retention settings of DIR: the topics' own settings, then the broker's (--config, or those of the last
    `tidelog serve` on DIR). If Kafka would delete records that DIR keeps, they are listed, and nothing is handed over without
    --carry-settings or --allow-deletion.
    """
    source, data_dir = Path(directory), Path(target)
    timeout_ms = duration_ms("--timeout", timeout)
    if read_meta_properties(data_dir) is None:
        raise DataDirNotFoundError("this is not the data folder of a Kafka broker, or the broker has never run", path=data_dir)
    if source.resolve() == data_dir.resolve():
        raise InvalidArgumentError("a folder cannot be handed over to itself", path=source)
    if recover(source, SystemClock()):
        notices.note(f"{source} was not shut down cleanly: it has been recovered")
    with DirLock(source):
        settings = TopicSettings(source, broker_properties(config))
        wanted = topics_to_hand(source, settings, topics, with_groups=with_groups)
    note_kafkas_since(settings)
    has_coordinator = any(one.name == TRANSACTIONS_TOPIC for one in wanted)
    for one in wanted:
        for partition, offset in one.open_transactions if not has_coordinator else ():
            notices.note(
                f"{one.name}-{partition} has an open transaction that begins at offset {offset}: no coordinator of Kafka will "
                "end it, and read_committed consumers stop there until it is aborted (kafka-transactions.sh)"
            )
        if one.oldest_format < 2:
            notices.note(
                f"{one.name} has batches of message format v{one.oldest_format}: Kafka 4 reads them, but does not convert them"
            )
        if not one.is_configuration_known:
            notices.note(f"the configuration of {one.name} is unknown: Kafka will keep its records forever (retention.ms=-1)")
    missing = [gap for one in wanted for gap in LogDir(source).missing(one.name)]
    report_missing(missing, as_json=as_json)
    keeping = Keeping(source, carry_settings, allow_deletion)
    guessed = [one.name for one in wanted if one.is_retention_default]
    if guessed:
        more = f" and {len(guessed) - _SHOWN_NAMES} more" if len(guessed) > _SHOWN_NAMES else ""
        notices.note(
            f"{', '.join(guessed[:_SHOWN_NAMES])}{more}: no retention.ms of their own: Kafka will use its default, 7 days; if "
            "the folder was served with a different default, pass the broker's configuration with --config"
        )
    ids = _ids(source, data_dir, bootstrap_server, wanted, keeping)
    _wait_for_stop(data_dir, timeout_ms)
    with ProgressBar("copying", sum(one.size_bytes for one in wanted), answer_on_stdout=False) as bar:
        place(source, data_dir, ids, bar.advance)
    (source / NOTES_FILE).unlink(missing_ok=True)
    lines = map(_json_line if as_json else _line, wanted, (ids[one.name] for one in wanted))
    print_lines([*lines, *([] if as_json else [_summary(sum(one.partitions for one in wanted), data_dir)])])
    end_with_missing(missing)


def _line(one: TopicToHand, topic_id: uuid.UUID) -> str:
    partitions = f"{one.partitions} partition{'' if one.partitions == 1 else 's'}"
    return one_line(f"{one.name}: {partitions}, {show_bytes_size(one.size_bytes)}, id {format_topic_id(topic_id)}")


def _json_line(one: TopicToHand, topic_id: uuid.UUID) -> str:
    return json_line(
        {"topic": one.name, "partitions": one.partitions, "bytes": one.size_bytes, "topic_id": format_topic_id(topic_id)}
    )


def _summary(count: int, data_dir: Path) -> str:
    return f"{count} partition{'' if count == 1 else 's'} handed over to {data_dir}; start Kafka"


def _ids(source: Path, data_dir: Path, bootstrap: str, wanted: list[TopicToHand], keeping: Keeping) -> dict[str, uuid.UUID]:
    """Return Kafka's ids of the topics: the ids stored by an earlier run, or else Kafka's answer after creating missing
    topics.
    """
    noted = _read_notes(source, data_dir)
    is_noted = all(one.name in noted for one in wanted)
    if is_noted and not _is_in_use(data_dir):
        return {one.name: noted[one.name] for one in wanted}
    admin = KafkaAdmin(bootstrap)
    try:
        there = admin.partitions()
    except StorageError:
        if is_noted:
            return {one.name: noted[one.name] for one in wanted}  # Kafka is being stopped.
        raise
    old = [one for one in wanted if one.name in there]
    old_ids = admin.topic_ids(one.name for one in old) if old else {}
    for one in old:
        _check_fits(admin, one, there[one.name], is_ours=noted.get(one.name) == old_ids[one.name])
    new = [one for one in wanted if one.name not in there]
    keeping.check([*(keeping.there(admin, one) for one in old), *(keeping.ours(one) for one in new)])
    admin.create(new)
    for one in new:
        notices.print_line(f"created {one.name} in Kafka: {one.partitions} partitions")
    ids = admin.topic_ids(one.name for one in wanted)
    keeping.check([keeping.there(admin, one) for one in new])
    _wait_for_folders(data_dir, wanted)
    entries = {name: format_topic_id(topic_id) for name, topic_id in ids.items()}
    write_json(source / NOTES_FILE, VERSION, {"target": str(data_dir.resolve()), "topics": entries})
    return ids


class Findings(NamedTuple):
    """The settings with which Kafka would keep fewer records of a topic than the folder does, and what Kafka would delete."""

    stricter: list[str]
    """Settings with which Kafka keeps fewer records than the folder's broker did, as text."""
    deletions: list[Deletion]


class Keeping:
    """Checks which records Kafka would delete. With `carries`, existing topics get the settings of DIR. With `allows`, deletions
    are only reported.
    """

    def __init__(self, source: Path, carries: bool, allows: bool) -> None:
        self._source = source
        self._carries = carries
        self._allows = allows
        self._now_ms = SystemClock().now_ms()

    def ours(self, one: TopicToHand) -> Findings:
        """Return which records the topic's settings in DIR would delete. If there are any, the folder was served with other
        settings.
        """
        return Findings([], deletions(self._source, one.name, one.config, self._now_ms))

    def there(self, admin: KafkaAdmin, one: TopicToHand) -> Findings:
        """Return which records an existing topic's settings in Kafka would delete. Change the settings first if requested."""
        in_kafka = admin.settings(one.name, DELETING)
        theirs = LogConfig.from_properties({name: setting.value for name, setting in in_kafka.items()})
        stricter = stricter_settings(one.config, theirs)
        if stricter and self._carries:
            admin.change(one.name, {name: one.properties[name] for name in stricter})
            notices.print_line(
                f"changed in Kafka: {one.name}: {', '.join(f'{name}={one.properties[name]}' for name in stricter)}"
            )
            return self.there_unchanged(admin, one)
        words = [
            f"{one.name}: {name} is {in_kafka[name].value} in Kafka ({in_kafka[name].source}), {one.properties[name]} here"
            for name in stricter
        ]
        return Findings(words, deletions(self._source, one.name, theirs, self._now_ms))

    def there_unchanged(self, admin: KafkaAdmin, one: TopicToHand) -> Findings:
        """Return which records an existing topic's settings in Kafka would delete, without changing the settings."""
        return Keeping(self._source, False, self._allows).there(admin, one)

    def check(self, found: Iterable[Findings]) -> None:
        """Report what Kafka would delete; raise InvalidArgumentError unless that is allowed."""
        is_kept = True
        for one in found:
            for words in one.stricter:
                is_kept = False
                notices.note(words)
            for gone in one.deletions:
                is_kept = False
                notices.note(
                    f"{gone.topic}-{gone.partition}: Kafka would delete {gone.offsets} of its records when it starts, in "
                    f"{gone.segments} segments, {show_bytes_size(gone.size_bytes)} ({gone.reason})"
                )
        if not is_kept and not self._allows:
            raise InvalidArgumentError(
                "Kafka would delete records that the folder keeps, so nothing was handed over: pass the broker's configuration "
                "with --config if the folder was served with one, add --carry-settings for topics that Kafka already has, "
                "or add --allow-deletion"
            )


def _check_fits(admin: KafkaAdmin, one: TopicToHand, replicas: list[int], *, is_ours: bool) -> None:
    """Raise InvalidArgumentError unless the partitions can be put into an existing topic in Kafka. `is_ours` means that an
    earlier run created the topic.
    """
    if len(replicas) != one.partitions:
        raise InvalidArgumentError(
            f"topic {one.name!r} already exists in Kafka with a different number of partitions",
            found=len(replicas),
            expected=one.partitions,
        )
    if max(replicas) > 1:
        # The other replicas are empty. If one of them became the leader, all others would truncate their logs to its empty log.
        raise InvalidArgumentError(
            f"topic {one.name!r} already exists in Kafka with more than one replica", found=max(replicas), expected=1
        )
    if not is_ours and any(admin.end_offsets(one.name, one.partitions)):
        raise InvalidArgumentError(f"topic {one.name!r} already has records in Kafka")


def _is_in_use(data_dir: Path) -> bool:
    try:
        with DirLock(data_dir):
            return False
    except StorageError:
        return True


def _read_notes(source: Path, data_dir: Path) -> dict[str, uuid.UUID]:
    path = source / NOTES_FILE
    content = read_json(path, VERSION, _WHAT)
    if content is None:
        return {}
    with understanding(path, _WHAT):
        if content["target"] != str(data_dir.resolve()):
            return {}
        ids = {name: parse_topic_id(text) for name, text in content["topics"].items()}
    return {name: topic_id for name, topic_id in ids.items() if topic_id is not None}


def _wait_for_folders(data_dir: Path, wanted: list[TopicToHand], timeout_s: float = 30) -> None:
    folders = [data_dir / names.log_dir_name(one.name, number) for one in wanted for number in range(one.partitions)]
    end = time.monotonic() + timeout_s
    while missing := [folder for folder in folders if not (folder / names.PARTITION_METADATA).exists()]:
        if time.monotonic() > end:
            raise InvalidArgumentError(
                "Kafka created the topic, but not in this folder: check that --to is Kafka's log.dir", path=missing[0]
            )
        time.sleep(POLL_S)


def _wait_for_stop(data_dir: Path, timeout_ms: int) -> None:
    """Wait until Kafka has released its folder. Raises StorageError after `timeout_ms`."""
    end = time.monotonic() + timeout_ms / 1000
    in_kafka = False
    while True:
        try:
            with DirLock(data_dir):
                return
        except StorageError as error:
            if time.monotonic() > end:
                raise StorageError(
                    "Kafka is still running: stop it, and run this command again to continue", path=data_dir
                ) from error
            if not in_kafka:
                in_kafka = True
                notices.print_line(f"the topics are ready: stop Kafka now (waiting for {data_dir})")
            time.sleep(POLL_S)
