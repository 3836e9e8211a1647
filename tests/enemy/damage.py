"""What befalls a folder: each kind of damage changes it in place and says what it did, or does nothing.

| class | what it befalls | an answer after it |
|---|---|---|
| hint | indexes, maps, snapshots, names, metadata of partitions | is the truth, or an error |
| told | checkpoints: they say what no record says | is the truth, or something is said |
| lost | `.log` files and folders | is the truth, or an error, or exit code 3 |
| hurt | bytes of a `.log` | the same |
| miswritten | bytes of a batch, under a checksum that is right | anything; but no error if `verify` finds nothing |
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from tests.enemy.folders import CHECKPOINTS, Folder
from tests.reader import hint_damage
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.formats.time_index import TimeIndex
from tidelog.model import TopicPartition
from tidelog.records.batch import BatchHeader, compute_crc

Class = Literal["hint", "told", "lost", "hurt", "miswritten"]

INDEXES = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX)
HINTS = (*INDEXES, names.TIME_MAP_SUFFIX, names.SNAPSHOT_SUFFIX)


class Damage(NamedTuple):
    what: str
    kind: Class


Make = Callable[[Folder, random.Random], Damage | None]


def _hints(folder: Folder) -> list[Path]:
    places = [folder.partition(key) for key in folder.keys]
    places += [] if folder.time_map_dir is None else [path for path in folder.time_map_dir.iterdir() if path.is_dir()]
    return [path for place in places for path in sorted(place.iterdir()) if path.suffix in HINTS]


def _a_hint(folder: Folder, rng: random.Random, suffixes: tuple[str, ...] = HINTS) -> Path | None:
    found = [path for path in _hints(folder) if path.suffix in suffixes]
    weighted = [path for path in found for _ in range(3 if path.suffix == names.TIME_INDEX_SUFFIX else 1)]
    return rng.choice(weighted) if weighted else None


def _a_log(folder: Folder, rng: random.Random) -> Path | None:
    logs = [log for log in folder.logs() if log.stat().st_size]
    return rng.choice(logs) if logs else None


def _key(folder: Folder, log: Path) -> TopicPartition:
    return next(key for key in folder.keys if folder.partition(key) == log.parent)


def _log_start(folder: Folder, log: Path) -> int:
    path = folder.path / names.LOG_START_OFFSET_CHECKPOINT
    return read_offset_checkpoint(path).get(_key(folder, log), 0) if path.exists() else 0


def _is_first(log: Path) -> bool:
    return log == min(log.parent.glob(f"*{names.LOG_SUFFIX}"))


def _is_last(log: Path) -> bool:
    return log == max(log.parent.glob(f"*{names.LOG_SUFFIX}"))


def _has_epochs_from(log: Path) -> bool:
    """Whether the leader epochs report the head of a log: those of formats v0 and v1 have none."""
    path = log.parent / names.LEADER_EPOCH_CHECKPOINT
    earliest = LeaderEpochs.read(path).earliest if path.exists() else None
    return earliest is not None and earliest.start_offset <= int(log.stem)


def _has_checkpoints(folder: Folder) -> bool:
    return (folder.path / names.RECOVERY_POINT_CHECKPOINT).exists()


def _of_a_class(path: Path, what: str) -> Damage:
    return Damage(f"{what} {path.parent.name}/{path.name}", "hint")


def flip(folder: Folder, rng: random.Random) -> Damage | None:
    """One bit of an index, a map or a snapshot."""
    path = _a_hint(folder, rng)
    data = bytearray(path.read_bytes()) if path is not None else bytearray()
    if path is None or not data:
        return None
    at = rng.randrange(len(data.rstrip(b"\0")) or len(data))
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return _of_a_class(path, f"flip byte {at} of")


def forge(folder: Folder, rng: random.Random) -> Damage | None:
    """Entries of an index that its log's batches agree with, or nearly."""
    path = _a_hint(folder, rng, (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX))
    if path is None:
        return None
    log = path.with_suffix(names.LOG_SUFFIX)
    if not log.exists() or not log.stat().st_size:
        return None
    make = rng.choice(FORGERIES)
    before = path.read_bytes()
    path.write_bytes(make(path, bytearray(before), log, rng))
    return _of_a_class(path, f"{make.__name__} in")


FORGERIES = (
    hint_damage._forge,
    hint_damage._forge_all,
    hint_damage._forge_rest,
    hint_damage._swap_entries,
    hint_damage._sector,
    hint_damage._zero,
)


def cut(folder: Folder, rng: random.Random) -> Damage | None:
    path = _a_hint(folder, rng)
    if path is None:
        return None
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])
    return _of_a_class(path, "cut")


def extend(folder: Folder, rng: random.Random) -> Damage | None:
    path = _a_hint(folder, rng)
    if path is None:
        return None
    data = path.read_bytes()
    path.write_bytes(
        data + rng.choice([bytes(rng.randrange(1, 60)), rng.randbytes(rng.randrange(1, 40)), data[-12:], data[:24], data])
    )
    return _of_a_class(path, "extend")


def delete_hints(folder: Folder, rng: random.Random) -> Damage | None:
    """One hint file, or all of one kind."""
    path = _a_hint(folder, rng)
    if path is None:
        return None
    if rng.random() < 0.5:
        path.unlink()
        return _of_a_class(path, "delete")
    for other in _hints(folder):
        if other.suffix == path.suffix:
            other.unlink()
    return Damage(f"delete all {path.suffix}", "hint")


def swap_hints(folder: Folder, rng: random.Random) -> Damage | None:
    """Two hint files of the same kind, of two segments or two partitions."""
    one = _a_hint(folder, rng)
    others = [path for path in _hints(folder) if one is not None and path.suffix == one.suffix and path != one]
    if one is None or not others:
        return None
    other = rng.choice(others)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    if rng.random() < 0.5:
        other.write_bytes(first)
    return _of_a_class(one, f"{other.parent.name}/{other.name} is put in the place of")


def stale_hints(folder: Folder, rng: random.Random) -> Damage | None:
    """The hint files of another state of the folder: one, all of one kind, or all of a partition."""
    if folder.other is None:
        return None
    theirs = [path for path in sorted(folder.other.rglob("*")) if path.suffix in HINTS and not path.parent.name.startswith("__")]
    if not theirs:
        return None
    one = rng.choice(theirs)
    which = rng.choice(["one", "kind", "kind", "partition", "all"])
    count = 0
    for path in theirs:
        is_chosen = {
            "one": path == one,
            "kind": path.suffix == one.suffix,
            "partition": path.parent == one.parent,
            "all": True,
        }[which]
        target = folder.path / path.relative_to(folder.other)
        if is_chosen and target.parent.is_dir():
            target.write_bytes(path.read_bytes())
            count += 1
            if folder.time_map_dir is not None and path.suffix == names.TIME_MAP_SUFFIX:
                beside = folder.time_map_dir / path.relative_to(folder.other)
                beside.parent.mkdir(exist_ok=True)
                beside.write_bytes(path.read_bytes())
    return Damage(f"stale: {which}, as {one.parent.name}/{one.name}, {count} files", "hint") if count else None


def flip_metadata(folder: Folder, rng: random.Random) -> Damage | None:
    """A bit of `partition.metadata`, or of the metadata log."""
    found = [folder.partition(key) / names.PARTITION_METADATA for key in folder.keys]
    metadata = folder.path / "__cluster_metadata-0"
    found += sorted(metadata.glob("*")) if metadata.is_dir() else []
    found = [path for path in found if path.exists() and path.stat().st_size]
    if not found:
        return None
    path = rng.choice(found)
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return Damage(f"flip a bit of {path.parent.name}/{path.name}", "told")


def change_checkpoint(folder: Folder, rng: random.Random) -> Damage | None:
    """A bit, a number or the length of a checkpoint; or it is gone, or stale."""
    found = [folder.path / name for name in CHECKPOINTS]
    found += [folder.partition(key) / names.LEADER_EPOCH_CHECKPOINT for key in folder.keys]
    found = [path for path in found if path.exists()]
    if not found:
        return None
    path = rng.choice(found)
    data = bytearray(path.read_bytes())
    how = rng.choice(["flip", "flip", "number", "cut", "delete", "stale", "swap"])
    if how == "flip" and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "number":
        lines = data.decode().splitlines()
        if len(lines) < 3:
            return None
        at = rng.randrange(2, len(lines))
        fields = lines[at].split(" ")
        fields[-1] = str(rng.choice([0, 1, 5, max(0, int(fields[-1]) - 1), int(fields[-1]) + 1, int(fields[-1]) + 1000]))
        lines[at] = " ".join(fields)
        data = bytearray("".join(f"{line}\n" for line in lines).encode())
    elif how == "cut":
        data = data[: rng.randrange(len(data) + 1)]
    elif how == "delete":
        path.unlink()
        return Damage(f"delete {path.parent.name}/{path.name}", "told")
    elif how == "stale" and folder.other is not None:
        other = folder.other / path.relative_to(folder.path)
        if not other.exists():
            return None
        data = bytearray(other.read_bytes())
    elif how == "swap":
        data = bytearray(rng.choice([one for one in found if one.parent == path.parent]).read_bytes())
    path.write_bytes(data)
    return Damage(f"{how} {path.parent.name}/{path.name}", "told")


def rename_segment(folder: Folder, rng: random.Random) -> Damage | None:
    """A segment gets another base offset, alone or with its indexes."""
    log = _a_log(folder, rng)
    if log is None or _key(folder, log).topic in folder.compacted:
        return None  # There offsets are missing by nature, and a name may be any of these.
    taken = {int(one.stem) for one in log.parent.glob(f"*{names.LOG_SUFFIX}")}
    base = int(log.stem)
    new = rng.choice([base + 1, base - 1, base + 2, base // 2, base * 2 + 3, base + (1 << rng.randrange(20))])
    if new in taken or new < 0:
        return None
    if new < base <= _log_start(folder, log) and _is_first(log):
        return None  # It loses nothing: what the new name seems to lack lies below the log start.
    suffixes = rng.choice([(names.LOG_SUFFIX,), (names.LOG_SUFFIX, *HINTS)])
    for suffix in suffixes:
        old = log.with_suffix(suffix)
        if old.exists():
            old.rename(log.with_name(names.file_name(new, suffix)))
    return Damage(f"rename {log.parent.name}/{log.name} to {new}, {len(suffixes)} files", "lost")


def stray_segment(folder: Folder, rng: random.Random) -> Damage | None:
    """A segment that is none beside the others: empty, among the offsets of one; or one of them, named as Kafka names none."""
    log = _a_log(folder, rng)
    if log is None:
        return None
    base, last = int(log.stem), hint_damage.headers_of(log)[-1].last_offset
    if last > base and rng.random() < 0.5:
        name = names.file_name(rng.randint(base + 1, last), names.LOG_SUFFIX)
        if not (log.parent / name).exists():
            (log.parent / name).touch()
            return Damage(f"empty {log.parent.name}/{name}", "lost")
    name = rng.choice([f"{base}.log", f"+{log.name}", f"0{log.name}", f"{log.stem}.bak.log", f"old-{log.name}"])
    move = rng.choice([shutil.copy, shutil.move])
    move(log, log.parent / name)
    return Damage(f"{move.__name__} {log.parent.name}/{log.name} to {name}", "lost")


def delete_logs(folder: Folder, rng: random.Random) -> Damage | None:
    """A `.log`, or a segment with all its files: the first, one in the middle, the last."""
    log = _a_log(folder, rng)
    is_whole = rng.random() < 0.6
    if log is None or (is_whole and _key(folder, log).topic in folder.compacted):
        return None  # Nothing says that it was there: docs/spec/what-is-believed.md. So here, and below.
    if is_whole and ((_is_first(log) and not _has_epochs_from(log)) or (_is_last(log) and not _has_checkpoints(folder))):
        return None
    log.unlink()
    if is_whole:
        for suffix in HINTS:
            if suffix != names.SNAPSHOT_SUFFIX or rng.random() < 0.5:
                log.with_suffix(suffix).unlink(missing_ok=True)
    return Damage(f"delete {log.parent.name}/{log.stem}.{'*' if is_whole else 'log'}", "lost")


def delete_partition(folder: Folder, rng: random.Random) -> Damage | None:
    key = rng.choice(folder.keys)
    if len(folder.keys) < 2 or not (folder.path / names.RECOVERY_POINT_CHECKPOINT).exists():
        return None
    if rng.random() < 0.6:
        shutil.rmtree(folder.partition(key))
        return Damage(f"delete partition {key.topic}-{key.partition}", "lost")
    topic = [one for one in folder.keys if one.topic == key.topic]
    if len(topic) == len(folder.keys):
        return None
    for one in topic:
        shutil.rmtree(folder.partition(one))
    return Damage(f"delete topic {key.topic}", "lost")


def cut_log(folder: Folder, rng: random.Random) -> Damage | None:
    """A `.log` loses its end, at a batch or in it."""
    log = _a_log(folder, rng)
    if log is None or (_is_last(log) and not _has_checkpoints(folder)):
        return None
    headers = hint_damage.headers_of(log)
    size = rng.choice([rng.choice(headers).position, rng.randrange(log.stat().st_size)])
    if _key(folder, log).topic in folder.compacted and not _is_last(log):
        entry = TimeIndex.from_bytes(int(log.stem), log.with_suffix(names.TIME_INDEX_SUFFIX).read_bytes()).last_entry
        end = max((header.last_offset for header in headers if header.end_position <= size), default=-1)
        if entry.offset <= end:
            return None
    with log.open("r+b") as file:
        file.truncate(size)
    return Damage(f"cut {log.parent.name}/{log.name} to {size}", "lost")


def hurt_log(folder: Folder, rng: random.Random) -> Damage | None:
    """One bit of a `.log`."""
    log = _a_log(folder, rng)
    if log is None:
        return None
    header = rng.choice(hint_damage.headers_of(log))
    at = rng.randrange(header.position, rng.choice([header.position + 26, header.end_position]))
    return flip_bit(folder, log, header, at - header.position, rng.randrange(8))


def flip_bit(folder: Folder, log: Path, header: BatchHeader, byte: int, bit: int) -> Damage | None:
    """Flip a bit of a batch; None if nothing could tell."""
    data, headers = bytearray(log.read_bytes()), hint_damage.headers_of(log)
    at = header.position + byte
    if at - header.position < 8 and (header == headers[-1] or _key(folder, log).topic in folder.compacted):
        return None  # No checksum covers an offset: only what follows says.
    if header.magic == 2 and 12 <= at - header.position < 16:
        return None  # Nor a leader epoch.
    data[at] ^= 1 << bit
    log.write_bytes(data)
    return Damage(f"flip bit {bit} of byte {at} of {log.parent.name}/{log.name}, {byte} in its batch", "hurt")


def miswrite(folder: Folder, rng: random.Random) -> Damage | None:
    """A batch that a wrong program wrote, and summed up: header, records or what they are compressed to."""
    log = _a_log(folder, rng)
    if log is None:
        return None
    data, header = bytearray(log.read_bytes()), rng.choice(hint_damage.headers_of(log))
    first = header.position + (21 if header.magic == 2 else 17)
    fields = first + (40 if header.magic == 2 else 17)
    places = [
        rng.randrange(first, rng.choice([fields, header.end_position, header.end_position])) for _ in range(rng.choice([1, 1, 3]))
    ]
    for at in places:
        data[at] = rng.choice([data[at] ^ 1 << rng.randrange(8), data[at] ^ 1 << rng.randrange(8), 0, 255, rng.randrange(256)])
    crc = compute_crc(header.magic, bytes(data[header.position : header.end_position]))
    at = header.position + (17 if header.magic == 2 else 12)
    if data[at : at + 4] == crc.to_bytes(4, "big"):
        return None
    data[at : at + 4] = crc.to_bytes(4, "big")
    log.write_bytes(data)
    where = ", ".join(str(at - header.position) for at in places)
    return Damage(f"bytes {where} of the batch at {header.position} of {log.parent.name}/{log.name}", "miswritten")


def replace_log(folder: Folder, rng: random.Random) -> Damage | None:
    """A `.log` of another state of the folder, of the same size: then that is the truth."""
    if folder.other is None:
        return None
    pairs = [(log, folder.other / log.relative_to(folder.path)) for log in folder.logs()]
    pairs = [(log, other) for log, other in pairs if other.exists() and other.stat().st_size == log.stat().st_size]
    pairs = [(log, other) for log, other in pairs if other.read_bytes() != log.read_bytes()]
    if not pairs:
        return None
    log, other = rng.choice(pairs)
    if rng.random() < 0.5:
        log.write_bytes(other.read_bytes())  # The same inode.
    else:
        log.unlink()
        shutil.copy2(other, log)
    return Damage(f"replace {log.parent.name}/{log.name}", "hint")


HINT: tuple[Make, ...] = (
    flip,
    flip,
    forge,
    forge,
    forge,
    cut,
    extend,
    delete_hints,
    swap_hints,
    stale_hints,
    stale_hints,
    replace_log,
)
REST: tuple[Make, ...] = (
    flip_metadata,
    change_checkpoint,
    change_checkpoint,
    rename_segment,
    stray_segment,
    delete_logs,
    delete_partition,
    cut_log,
    hurt_log,
    miswrite,
    miswrite,
)


def any_damage(folder: Folder, rng: random.Random) -> Damage | None:
    return rng.choice(rng.choice([HINT, HINT, REST]))(folder, rng)
