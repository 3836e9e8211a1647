"""`tidelog retention DIR [TOPIC]`: when each segment is deleted, and which record keeps it until then.

It answers "why is this still there?": retention checks each segment's largest timestamp, from the oldest segment, and stops at
the first segment that stays. The record that decides is shown with its offset, and marked if its timestamp is in the future.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import click

from tidelog.cli.client_options import Decorated, given_option
from tidelog.cli.options import (
    broker_config_option,
    broker_properties,
    duration_ms,
    folders_argument,
    json_option,
    note_kafkas_since,
    optional_topic,
    wanted_partitions,
)
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, one_line, show_bytes_size, show_span, show_time, table
from tidelog.cli.printing.missing import end_with_missing, report_missing
from tidelog.cli.printing.output import print_lines
from tidelog.cli.time_options import run_clock
from tidelog.config import LogConfig
from tidelog.reader.log import Log
from tidelog.reader.tiered.tiered_log_dir import open_log_dir
from tidelog.storage.folder.served_settings import ServedSettings
from tidelog.storage.retention_forecast import Forecast, Keeper, forecast
from tidelog.storage.topics.topic_settings import Source, TopicSettings

_BYTES = re.compile(r"([0-9]+)\s*(|[kKmMgGtT]i?[bB]?|[bB])")
_SHOWN_NAMES = 5
_FACTORS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def limit_options(function: Decorated) -> Decorated:
    """Add the options --retention and --retention-bytes."""
    for option in reversed(_LIMITS):
        function = option(function)
    return function


_LIMITS = (
    click.option(
        "--retention", metavar="TIME", help="retention.ms: 7d, 36h, milliseconds, or -1 forever. [default: the topic's]"
    ),
    click.option(
        "--retention-bytes", metavar="SIZE", help="retention.bytes: bytes, 10GiB, or -1 for any size. [default: the topic's]"
    ),
)


@click.command()
@folders_argument
@optional_topic
@limit_options
@broker_config_option
@json_option
@given_option
@click.pass_context
def command(
    ctx: click.Context,
    directory: str,
    topic: str | None,
    partitions: tuple[int, ...],
    retention: str | None,
    retention_bytes: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Show for each segment when retention deletes it, and which record (offset, timestamp) keeps it until then.

    The command uses the topic's own settings if the folder has them (a folder of Tidelog does; a folder of Kafka does if it
    contains the metadata log), then the broker's (--config, or those of the last `tidelog serve` on the folder), then Kafka's
    defaults (7 days, any size). The source of each setting is shown. Nothing is deleted.
    """
    given = given_limits(retention, retention_bytes)
    now_ms = run_clock(ctx).now_ms()
    log_dir = open_log_dir(directory)
    settings = TopicSettings(log_dir.metadata_path, broker_properties(config))
    names = [topic] if topic is not None else sorted(log_dir.topics())
    lines: list[str] = []
    missing = [] if partitions else log_dir.missing_partitions(topic)
    unknown: list[str] = []
    for name in names:
        known = settings.of(name)
        if not known.is_known and not given:
            unknown.append(name)
        applied = replace(known.config, **given)  # type: ignore[arg-type]  # both are numbers
        names_shown = (*_NAMES, *_LOCAL_NAMES) if applied.remote_storage_enable else _NAMES
        sources = {name: Source.OPTION if name.replace(".", "_") in given else known.source(name) for name in names_shown}
        for partition in wanted_partitions(partitions) or log_dir.partitions(name):
            with log_dir.log(name, partition) as log:
                log.check_names()
                found = forecast(log, applied, now_ms)
                leaves = _leaves_folder(log, applied, now_ms) if applied.remote_storage_enable else None
                missing += log_dir.missing_of(log)
                title = (
                    f"{name}-{partition}: {_settings(applied, sources, settings.served)}; high watermark {log.high_watermark}, "
                    f"log end {log.log_end_offset}"
                )
            if as_json:
                lines += [_json(name, partition, one, now_ms, applied, sources, leaves) for one in found]
            else:
                lines.append(one_line(title))
                header = _HEADER if leaves is None else (*_HEADER, "leaves the folder")
                lines += table(header, (_cells(one, now_ms, leaves) for one in found), spare=("size", "next offset"), indent="  ")
                lines += [f"  {line}" for line in _futures(found, now_ms)]
    if unknown:
        shown = ", ".join(unknown[:_SHOWN_NAMES]) + (
            f" and {len(unknown) - _SHOWN_NAMES} more" if len(unknown) > _SHOWN_NAMES else ""
        )
        notices.note(f"the configuration of {shown} is not in the folder's metadata")
    note_kafkas_since(settings)
    print_lines(lines)
    report_missing(missing, as_json=as_json)
    end_with_missing(missing)


def given_limits(retention: str | None, retention_bytes: str | None) -> dict[str, int]:
    """Return the values of --retention and --retention-bytes, by the names of `LogConfig`. Raises InvalidArgumentError."""
    given = {}
    if retention is not None:
        given["retention_ms"] = -1 if retention.strip() == "-1" else duration_ms("--retention", retention)
    if retention_bytes is not None:
        given["retention_bytes"] = _bytes(retention_bytes)
    return given


def _bytes(text: str) -> int:
    if text.strip() == "-1":
        return -1
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise click.UsageError(f"--retention-bytes is not a size: found {text!r}, expected bytes, 500MB, 10GiB, or -1")
    return int(match[1]) * _FACTORS[match[2][:1].lower()]


_NAMES = ("cleanup.policy", "retention.ms", "retention.bytes")
_LOCAL_NAMES = ("remote.storage.enable", "local.retention.ms", "local.retention.bytes")


def _leaves_folder(log: Log, config: LogConfig, now_ms: int) -> dict[int, Forecast]:
    """Return, by base offset, when each segment is deleted from the local folder, provided it is in remote storage by then.

    A local limit of -2 means the limit of the whole log (KIP-405).
    """
    local_start = log.segments[0].base_offset if log.tiered is None else log.tiered.local_start
    config = replace(
        config,
        retention_ms=config.retention_ms if config.local_retention_ms == -2 else config.local_retention_ms,
        retention_bytes=config.retention_bytes if config.local_retention_bytes == -2 else config.local_retention_bytes,
    )
    whole, first = log.segments, bisect_left(log.segments, local_start, key=lambda segment: segment.base_offset)
    log.segments = whole[first:]  # Remote segments do not count towards local.retention.bytes.
    try:
        return {one.base_offset: one for one in forecast(log, config, now_ms)}
    finally:
        log.segments = whole


def _settings(config: LogConfig, sources: Mapping[str, Source], served: ServedSettings | None) -> str:
    def told(name: str) -> str:
        since = f" {show_time(served.time_ms)}" if served is not None and sources[name] is Source.SERVED else ""
        return f"({sources[name].value}{since})"

    if not config.is_deleted:
        return f"cleanup.policy {config.cleanup_policy} {told('cleanup.policy')}"
    time = "forever" if config.retention_ms < 0 else show_span(config.retention_ms)
    size = "any size" if config.retention_bytes < 0 else show_bytes_size(config.retention_bytes)
    kept = f"retention {time} {told('retention.ms')}, {size} {told('retention.bytes')}"
    if config.remote_storage_enable:
        local = [
            "as all" if value == -2 else "no limit" if value < 0 else show(value)
            for value, show in ((config.local_retention_ms, show_span), (config.local_retention_bytes, show_bytes_size))
        ]
        kept += f"; tiered, local {local[0]} {told('local.retention.ms')}, {local[1]} {told('local.retention.bytes')}"
    return f"{kept}, compacted too {told('cleanup.policy')}" if config.is_compacted else kept


_HEADER = ("base offset", "next offset", "size", "largest timestamp", "at offset", "goes", "because")


def _cells(one: Forecast, now_ms: int, leaves: Mapping[int, Forecast] | None) -> list[object]:
    own = one.own
    local = None if leaves is None else leaves.get(one.base_offset)
    where = [] if leaves is None else ["is remote" if local is None else _goes(local, now_ms)]
    return [
        *(one.base_offset, one.next_offset, show_bytes_size(one.size_bytes)),
        *((None, None) if own is None else (show_time(own.timestamp), "file's time" if own.offset is None else own.offset)),
        _goes(one, now_ms),
        _because(one, now_ms),
        *where,
    ]


def _goes(one: Forecast, now_ms: int) -> str:
    if one.goes_ms is None:
        return "stays"
    return "now" if one.goes_ms <= now_ms else f"{show_time(one.goes_ms)}, in {show_span(one.goes_ms - now_ms)}"


def _because(one: Forecast, now_ms: int) -> str:
    keeper = one.keeper
    if keeper is None or keeper.base_offset == one.base_offset or (one.goes_ms is not None and one.goes_ms <= now_ms):
        return one.reason
    return f"{one.reason}, kept by {_record(keeper)} in segment {keeper.base_offset}"


def _record(keeper: Keeper) -> str:
    return "the file's time" if keeper.offset is None else f"record {keeper.offset}"


def _futures(found: list[Forecast], now_ms: int) -> Iterator[str]:
    """Yield a note for each record with a timestamp in the future that keeps more than its own segment."""
    for one in found:
        own = one.own
        if own is not None and own.timestamp > now_ms and one.keeper == own:
            kept = sum(other.keeper == own for other in found)
            yield (
                f"{_record(own)} is {show_span(own.timestamp - now_ms)} in the future ({show_time(own.timestamp)}) "
                f"and keeps {kept} segment{'' if kept == 1 else 's'}"
            )


def _json(
    topic: str,
    partition: int,
    one: Forecast,
    now_ms: int,
    config: LogConfig,
    sources: Mapping[str, Source],
    leaves: Mapping[int, Forecast] | None,
) -> str:
    settings = config.to_properties()
    local = None if leaves is None else leaves.get(one.base_offset)
    keeper, own = one.keeper, one.own
    return json_line(
        {
            "topic": topic,
            "partition": partition,
            "base_offset": one.base_offset,
            "next_offset": one.next_offset,
            "bytes": one.size_bytes,
            "largest_timestamp": None if own is None else own.timestamp,
            "largest_timestamp_offset": None if own is None else own.offset,
            "goes_ms": one.goes_ms,
            "goes_now": one.goes_ms is not None and one.goes_ms <= now_ms,
            "reason": one.reason,
            "kept_by_segment": None if keeper is None else keeper.base_offset,
            "kept_by_offset": None if keeper is None else keeper.offset,
            "kept_by_timestamp": None if keeper is None else keeper.timestamp,
            "kept_by_future": keeper is not None and keeper.timestamp > now_ms,
            "settings": {name: {"value": settings[name], "source": sources[name].name.lower()} for name in sources},
            **({} if leaves is None else {"is_local": local is not None, "leaves_folder_ms": local and local.goes_ms}),
        }
    )
