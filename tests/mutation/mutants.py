"""Broken rules: for rows of docs/sources.md, an edit of the source that makes Tidelog do something else than the row says.

Each `Mutant` replaces texts that occur once in a file of `src/tidelog`; two where a quick question and the full one ask the
same. At least one of the tests that the row names must fail on the edited source; `python -m tests.mutation` runs them. Compiled
kernels cannot be edited this way: the rules below are those of the Python files. When a rule moves, its mutant moves with it:
`test_mutants` fails until then.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A rule broken: in `path` (below `src/tidelog`) each text of `edits`, which occurs once, becomes the other."""

    rows: str
    """The rows whose tests must notice, separated by blanks."""
    breaks: str
    """What it does wrong."""
    path: str
    edits: tuple[tuple[str, str], ...]

    def applied_to(self, source: str) -> str:
        """Return the edited source."""
        for old, new in self.edits:
            source = source.replace(old, new)
        return source


MUTANTS = [
    # --- the time index: entries, density, the last entry
    Mutant(
        "KIP33-11",
        "another file name",
        "formats/names.py",
        (('TIME_INDEX_SUFFIX = ".timeindex"', 'TIME_INDEX_SUFFIX = ".time.index"'),),
    ),
    Mutant(
        "KIP33-12 LOOK-14",
        "an entry when exactly the interval has passed",
        "storage/segment/log_segment.py",
        (
            (
                "self.index_interval_bytes = config.index_interval_bytes",
                "self.index_interval_bytes = config.index_interval_bytes - 1",
            ),
        ),
    ),
    Mutant(
        "KIP33-13 KIP33-110",
        "a little-endian entry",
        "formats/time_index.py",
        (('struct.Struct(">qi")', 'struct.Struct("<qi")'),),
    ),
    Mutant(
        "KIP33-14 KIP33-24",
        "the batch's own timestamp instead of the largest so far",
        "storage/segment/log_segment.py",
        (
            (
                "time_index.maybe_append(max_timestamp, offset_of_max)",
                "time_index.maybe_append(header.max_timestamp, header.last_offset)",
            ),
        ),
    ),
    Mutant(
        "KIP33-15",
        "the base offset of the batch",
        "storage/segment/log_segment.py",
        (
            (
                "max_timestamp, offset_of_max = header.max_timestamp, header.last_offset\n                if since > interval:",
                "max_timestamp, offset_of_max = header.max_timestamp, header.base_offset\n                if since > interval:",
            ),
        ),
    ),
    Mutant(
        "KIP33-17 KIP33-38",
        "the index file of a new segment is made at once",
        "storage/segment/log_segment.py",
        (
            (
                "        return cls(log, base_offset, config, clock,",
                "        Path(f\"{directory}/{file_name(base_offset, '.timeindex')}{suffix}\").touch()\n        return cls(log, base_offset, config, clock,",
            ),
        ),
    ),
    Mutant(
        "KIP33-19",
        "the slot of the closing entry is given away",
        "formats/time_index.py",
        (("return self.entries >= self.max_entries - 1", "return self.entries >= self.max_entries"),),
    ),
    Mutant(
        "KIP33-20",
        "the largest timestamp is the last one",
        "storage/segment/log_segment.py",
        (
            (
                "                    if header.max_timestamp > max_timestamp:\n                        max_timestamp",
                "                    if header.max_timestamp:\n                        max_timestamp",
            ),
        ),
    ),
    Mutant(
        "KIP33-21",
        "an empty index says 0",
        "formats/time_index.py",
        (
            (
                "return TimestampOffset(-1, self.base_offset) if self.entries == 0 else",
                "return TimestampOffset(0, self.base_offset) if self.entries == 0 else",
            ),
        ),
    ),
    Mutant(
        "KIP33-24 KIP33-30",
        "an entry also where the largest timestamp did not grow",
        "formats/time_index.py",
        (("        if timestamp > last_timestamp:\n", "        if timestamp >= last_timestamp:\n"),),
    ),
    Mutant(
        "KIP33-26",
        "no last entry at the roll",
        "storage/segment/log_segment.py",
        (("        self.time_index.maybe_append(largest.timestamp, largest.offset, skip_full_check=True)\n", ""),),
    ),
    Mutant(
        "KIP33-39",
        "entries of truncated messages stay in the time index",
        "storage/segment/log_segment.py",
        (("        self.time_index.truncate_to(offset)\n", ""),),
    ),
    Mutant(
        "KIP33-39",
        "an entry at the target stays",
        "formats/time_index.py",
        (
            (
                "bisect_left(range(self.entries), offset - self.base_offset, key=self._relative)",
                "bisect_left(range(self.entries), offset - self.base_offset + 1, key=self._relative)",
            ),
        ),
    ),
    Mutant(
        "KIP33-40",
        "the largest timestamp is not found again after a truncation",
        "storage/segment/log_segment.py",
        (
            (
                "        if had_timestamps:\n            self._max_timestamp",
                "        if not had_timestamps:\n            self._max_timestamp",
            ),
        ),
    ),
    Mutant(
        "KIP33-40",
        "after a truncation the largest timestamp is the last entry's, and nothing after it counts",
        "storage/segment/log_segment.py",
        (
            (
                "        for header in self.batches_from(largest.offset):\n            if header.max_timestamp > largest.timestamp:",
                "        for header in self.batches_from(largest.offset):\n            if header.max_timestamp > largest.timestamp + 10**15:",
            ),
        ),
    ),
    Mutant(
        "KIP33-31",
        "the largest timestamp after a start is the last entry's, and nothing after it counts",
        "storage/segment/log_segment.py",
        (
            (
                "            if self.time_index.entries == 0 or not self.time_index.is_own:",
                "            if self.time_index.entries == 0:",
            ),
        ),
    ),
    Mutant(
        "KIP33-25",
        "a batch without a timestamp gets an entry",
        "formats/time_index.py",
        (("        last_timestamp = -1\n        if self.entries:", "        last_timestamp = -2\n        if self.entries:"),),
    ),
    Mutant(
        "KIP33-28",
        "a segment without timestamps has no largest one, instead of its file's",
        "reader/segment_time.py",
        (('if largest.source == "none" else largest', 'if largest.source == "never" else largest'),),
    ),
    Mutant(
        "KIP32-18",
        "append times go back with the clock",
        "storage/partition/append/log_append_time.py",
        (("        if last_ms <= now_ms:", "        if last_ms <= now_ms or now_ms:"),),
    ),
    Mutant(
        "KIP32-18",
        "what another leader stamped does not count",
        "storage/partition/append/log_append_time.py",
        (("max(self._last_ms, header.max_timestamp)", "max(self._last_ms, 0 * header.max_timestamp)"),),
    ),
    Mutant(
        "KIP32-14",
        "messages inside keep the producer's time",
        "records/conversion.py",
        (
            (
                "        records = [record._replace(timestamp=target.append_time) for record in records]",
                "        records = list(records)",
            ),
        ),
    ),
    # --- retention
    Mutant(
        "KIP33-44",
        "gone when exactly as old as retention.ms",
        "storage/partition/retention.py",
        (("> config.retention_ms)", ">= config.retention_ms)"),),
    ),
    Mutant(
        "KIP33-45 KIP33-46",
        "an expired segment goes although an older one stays",
        "storage/partition/retention.py",
        (("not breaches(facts):\n                return\n", "not breaches(facts):\n                continue\n"),),
    ),
    Mutant(
        "KIP33-46",
        "the forecast of a segment forgets the ones before it",
        "storage/retention_forecast.py",
        (("if keeper is not None and (latest is None or keeper.timestamp > latest.timestamp):", "if keeper is not None:"),),
    ),
    Mutant(
        "KIP33-41",
        "the newest segments are asked first",
        "storage/partition/retention.py",
        (("for facts in segments[len(going) :]:", "for facts in reversed(segments[len(going) :]):"),),
    ),
    Mutant(
        "KIP33-6 KIP33-42",
        "the last entry alone is believed",
        "storage/partition/retention.py",
        (("        checked = segment.check_largest_timestamp().timestamp\n", "        return segment.largest_timestamp\n"),),
    ),
    Mutant(
        "KIP33-98",
        "a segment without timestamps is of 1970",
        "storage/partition/retention.py",
        (("return checked if checked >= 0 else segment.log.modified_ms", "return checked"),),
    ),
    # --- rolling
    Mutant(
        "KIP33-49 KIP33-48 KIP33-1 KIP32-103",
        "wall time instead of event time",
        "storage/segment/log_segment.py",
        (
            (
                "            return message_timestamp - first\n        return now_ms",
                "            return now_ms - self.created_ms\n        return now_ms",
            ),
            (
                "and max_timestamp - first <= max_segment_ms - self.roll_jitter_ms",
                "and self._clock.now_ms() - self.created_ms <= max_segment_ms - self.roll_jitter_ms",
            ),
        ),
    ),
    Mutant(
        "KIP33-49",
        "one millisecond early",
        "storage/segment/log_segment.py",
        (
            (
                "if waited_ms > params.max_segment_ms - self.roll_jitter_ms:",
                "if waited_ms >= params.max_segment_ms - self.roll_jitter_ms:",
            ),
            (
                "and max_timestamp - first <= max_segment_ms - self.roll_jitter_ms",
                "and max_timestamp - first < max_segment_ms - self.roll_jitter_ms",
            ),
        ),
    ),
    Mutant(
        "KIP32-26 KIP33-49",
        "by the batch's first timestamp, not its largest",
        "storage/segment/log_segment.py",
        (
            (
                "            self._rolling_based_timestamp = headers[0].max_timestamp\n        self._max",
                "            self._rolling_based_timestamp = headers[0].base_timestamp\n        self._max",
            ),
        ),
    ),
    Mutant(
        "KIP32-26",
        "by the largest timestamp of the whole append",
        "storage/segment/log_segment.py",
        (
            (
                "            self._rolling_based_timestamp = headers[0].max_timestamp\n        self._max",
                "            self._rolling_based_timestamp = max(h.max_timestamp for h in headers)\n        self._max",
            ),
        ),
    ),
    Mutant(
        "KIP32-26 ART-25",
        "by the segment's largest timestamp so far",
        "storage/segment/log_segment.py",
        (
            (
                "        first = self._first_timestamp()\n        if first is not None and first >= 0:\n            return message",
                "        first = self.max_timestamp_so_far\n        if first is not None and first >= 0:\n            return message",
            ),
        ),
    ),
    Mutant(
        "KIP33-51 KIP33-100",
        "a later message's time counts where the first has none",
        "storage/segment/log_segment.py",
        (
            (
                "        if first is not None and first >= 0:\n            return message_timestamp - first",
                "        if first is not None:\n            return message_timestamp - max(first, 0)",
            ),
        ),
    ),
    # --- search
    Mutant(
        "KIP33-52",
        "the search starts at the second segment",
        "reader/time_search.py",
        (
            (
                "    for segment in log.segments:\n        found, verdict",
                "    for segment in log.segments[1:] or log.segments:\n        found, verdict",
            ),
        ),
    ),
    Mutant(
        "KIP33-52",
        "the newest segment is asked first",
        "reader/time_search.py",
        (
            (
                "    for segment in log.segments:\n        found, verdict",
                "    for segment in reversed(log.segments):\n        found, verdict",
            ),
        ),
    ),
    Mutant(
        "KIP33-52",
        "no segment is skipped by its last entry",
        "reader/time_search.py",
        (('    if largest.timestamp < timestamp:\n        return None, "too early", largest\n', ""),),
    ),
    Mutant(
        "KIP33-53",
        "an equal timestamp is no match",
        "reader/time_search.py",
        (
            (
                '    if largest.timestamp < timestamp:\n        return None, "too early"',
                '    if largest.timestamp <= timestamp:\n        return None, "too early"',
            ),
        ),
    ),
    Mutant(
        "KIP33-54 ART-43",
        "the search ends at the first segment that is late enough",
        "reader/time_search.py",
        (
            (
                "        if found is not None:\n            break\n    return found",
                '        if found is not None or verdict == "no match":\n            break\n    return found',
            ),
        ),
    ),
    Mutant(
        "KIP33-53 LOOK-20",
        "the walk starts at the segment's start",
        "reader/segment_time.py",
        (("return 0 if known is None else known[1].position", "return 0"),),
    ),
    Mutant(
        "KIP33-32 KIP33-33 ART-45",
        "what follows the last entry is not looked at",
        "reader/segment_time.py",
        (
            (
                '        if header.max_timestamp > largest.timestamp:\n            largest = LargestTimestamp(header.max_timestamp, header.last_offset, "log")',
                '        if index is not None and index.entries:\n            break\n        if header.max_timestamp > largest.timestamp:\n            largest = LargestTimestamp(header.max_timestamp, header.last_offset, "log")',
            ),
        ),
    ),
    Mutant(
        "LOOK-18 LOOK-24",
        "the starting offset does not count",
        "reader/segment_time.py",
        (
            (
                "record = first_record_at(header, batch, timestamp, starting_offset, path=segment.log_path)",
                "record = first_record_at(header, batch, timestamp, 0, path=segment.log_path)",
            ),
        ),
    ),
    Mutant(
        "LOOK-19 LOOK-22 KIP33-53",
        "the time index gives the entry after the target's",
        "formats/time_index.py",
        (("slot = bisect_right(timestamps, timestamp) - 1", "slot = bisect_left(timestamps, timestamp)"),),
    ),
    Mutant(
        "KIP33-57",
        "a range ends at the first offset that is late enough",
        "sources/files/folder_plan.py",
        (
            (
                "    copies = 0\n    if start_offset < end_offset and not time.is_empty:",
                "    copies = 0\n    if time.end_ms is not None:\n        from tidelog.reader.time_search import find_from\n\n        late = find_from(log, time.end_ms, start_offset)\n        end_offset = end_offset if late is None else min(end_offset, late)\n    if start_offset < end_offset and not time.is_empty:",
            ),
        ),
    ),
    Mutant(
        "LOOK-25 ART-41",
        "the log-start-offset checkpoint is not read",
        "reader/log_dir.py",
        (("log_start_offset=claims.log_start_offset,", "log_start_offset=None,"),),
    ),
    # --- timestamps at the append
    Mutant(
        "KIP33-22 ART-3 KIP32-96",
        "a record too old is let in",
        "records/validation_rules.py",
        (("return max(now_ms - rules.before_max_ms, MIN_TIME), ", "return MIN_TIME, "),),
    ),
    Mutant(
        "KIP33-22 ART-5 KIP32-95",
        "a record too far in the future is let in",
        "records/validation_rules.py",
        (("min(now_ms + rules.after_max_ms, MAX_TIME)", "MAX_TIME"),),
    ),
    Mutant(
        "KIP33-23 ART-2",
        "LogAppendTime keeps the producer's time",
        "records/validation_rules.py",
        (
            (
                "timestamp_type=LOG_APPEND_TIME if config.message_timestamp_type == LOG_APPEND_TIME_NAME else CREATE_TIME",
                "timestamp_type=CREATE_TIME",
            ),
        ),
    ),
    Mutant(
        "ART-8 KIP32-22 KIP32-23 KIP32-24",
        "append times go back with the clock",
        "storage/partition/append/log_append_time.py",
        (("        if last_ms <= now_ms:\n", "        if last_ms:\n"),),
    ),
    Mutant(
        "KIP32-24",
        "the last append time is not read after a restart",
        "storage/partition/append/log_append_time.py",
        (("            last_ms = self._last_ms = last_append_time(self._segments, now_ms)", "            last_ms = None"),),
    ),
    # --- one rule, further rows
    Mutant(
        "ART-36 ART-42",
        "the broker answers past the last stable offset",
        "storage/partition/offset_lookup.py",
        (
            (
                "        end = log.watermarks.last_stable_offset if isolation is FetchIsolation.TXN_COMMITTED else log.log_end_offset\n",
                "        end = log.log_end_offset\n",
            ),
        ),
    ),
    Mutant(
        "KIP33-55",
        "the broker starts at the newest segment",
        "storage/partition/offset_lookup.py",
        (
            (
                "is_largest_checked else _checked(segments):\n        if segment.reaches(timestamp):",
                "is_largest_checked else reversed(list(_checked(segments))):\n        if segment.reaches(timestamp):",
            ),
        ),
    ),
    Mutant(
        "KIP33-54",
        "the broker ends at the first segment that is late enough",
        "storage/partition/offset_lookup.py",
        (
            (
                "            found = segment.find_offset_by_timestamp(timestamp, start)\n            if found is not None:\n                return found\n",
                "            return segment.find_offset_by_timestamp(timestamp, start)\n",
            ),
        ),
    ),
    Mutant(
        "KIP33-94",
        "a made-up file time is an answer",
        "reader/segment_time.py",
        (
            (
                "    if batch is not None and _agrees(segment, entry, before, batch):\n",
                "    if batch is None:\n        first = next(segment.headers())\n        return entry, first\n    if _agrees(segment, entry, before, batch):\n",
            ),
        ),
    ),
    Mutant(
        "KIP33-29 KIP33-119",
        "a segment that begins later than the last one ended ends the search",
        "reader/time_search.py",
        (
            (
                '    if largest.timestamp < timestamp:\n        return None, "too early", largest\n',
                '    if largest.timestamp < timestamp + 5:\n        return None, "too early", largest\n',
            ),
        ),
    ),
    Mutant(
        "KIP33-68",
        "the last record of a time is the answer",
        "reader/segment_time.py",
        (
            (
                "            found = FoundRecord(*record, header)\n            break\n",
                "            found = FoundRecord(*record, header)\n            if record[1] > timestamp:\n                break\n",
            ),
        ),
    ),
    Mutant(
        "KIP33-56 KIP33-60 KIP33-61",
        "a record later than asked, not equal",
        "reader/segment_time.py",
        (
            (
                "    start = start_position(segment, timestamp, trace)\n",
                "    timestamp += 1\n    start = start_position(segment, timestamp, trace)\n",
            ),
        ),
    ),
    Mutant(
        "KIP33-62 KIP33-111 LOOK-16",
        "an entry that does not agree with the log is used",
        "reader/segment_time.py",
        (
            (
                "    if batch.max_timestamp != entry.timestamp or (batch.magic == 2 and batch.base_offset > entry.offset):\n        return False\n",
                "    return True\n",
            ),
        ),
    ),
    Mutant(
        "KIP33-91 KIP33-98",
        "retention takes no file time",
        "storage/partition/retention.py",
        (("return checked if checked >= 0 else segment.log.modified_ms", "return checked if checked >= 0 else 2**62"),),
    ),
    Mutant(
        "KIP33-92 KIP33-51",
        "a segment without timestamps never rolls by time",
        "storage/segment/log_segment.py",
        (("        return now_ms - self.created_ms\n", "        return -1\n"),),
    ),
    Mutant(
        "KIP33-90",
        "the largest timestamp starts at 0",
        "formats/time_index.py",
        (("        last_timestamp = -1\n", "        last_timestamp = 0\n"),),
    ),
    Mutant(
        "KIP33-58 KIP33-2",
        "version 0 goes by the records' times",
        "storage/partition/offset_lookup.py",
        (
            (
                "(max(segment.base_offset, log.log_start_offset), segment.last_modified_ms)",
                "(max(segment.base_offset, log.log_start_offset), segment.max_timestamp_so_far)",
            ),
        ),
    ),
    Mutant(
        "KIP33-88",
        "the offset index's size under its old name is not known",
        "config.py",
        (('"log.index.size.max.bytes"', '"log.index.size.max.byte"'),),
    ),
    # --- the answer over the wire
    Mutant(
        "ART-40",
        "earliest and latest come with a time",
        "reader/time_search.py",
        (("return FoundOffset(place.offset, NO_TIMESTAMP,", "return FoundOffset(place.offset, 0,"),),
    ),
    Mutant(
        "ART-42 ART-36",
        "read_committed goes past the last stable offset",
        "reader/time_search.py",
        (
            (
                '(lambda: log.last_stable_offset) if isolation == "read_committed" else (lambda: log.log_end_offset)',
                "lambda: log.log_end_offset",
            ),
        ),
    ),
    Mutant(
        "ART-36",
        "a withheld record is an answer",
        "reader/time_search.py",
        (
            (
                'if found is None or (isolation == "read_committed" and found.offset >= log.last_stable_offset):',
                "if found is None:",
            ),
        ),
    ),
    Mutant(
        "ART-44",
        "no record is at or after that time: the log end",
        "reader/time_search.py",
        (
            (
                "        return None\n    past = ",
                "        return FoundOffset(log.log_end_offset, NO_TIMESTAMP, -1)\n    past = ",
            ),
        ),
    ),
    Mutant(
        "LOOK-27",
        "the answer has no leader epoch",
        "reader/time_search.py",
        (
            (
                "return FoundOffset(found.offset, found.timestamp, found.header.leader_epoch, past)",
                "return FoundOffset(found.offset, found.timestamp, -1, past)",
            ),
        ),
    ),
    Mutant(
        "LOOK-27",
        "the broker's answer has no leader epoch",
        "broker/apis/list_offsets.py",
        (("    return 0, at_ms, offset, epoch\n", "    return 0, at_ms, offset, -1\n"),),
    ),
    Mutant(
        "KIP33-101",
        "a topic of format v0 is searched by time",
        "reader/offset_targets.py",
        (
            (
                "if target != EARLIEST and log.message_format == 0:",
                "if target == LATEST_TIERED and log.message_format == 0:",
            ),
        ),
    ),
    Mutant(
        "LOOK-26",
        "each batch is opened",
        "reader/segment_time.py",
        (
            (
                "        if header.max_timestamp < timestamp or header.last_offset < starting_offset:\n            continue\n        opened += 1",
                "        if header.last_offset < starting_offset:\n            continue\n        opened += 1",
            ),
        ),
    ),
    # --- what is appended
    Mutant(
        "KIP32-7 KIP33-23",
        "CreateTime topics are stamped",
        "records/validation_rules.py",
        (
            (
                "timestamp_type=LOG_APPEND_TIME if config.message_timestamp_type == LOG_APPEND_TIME_NAME else CREATE_TIME",
                "timestamp_type=LOG_APPEND_TIME",
            ),
        ),
    ),
    Mutant(
        "KIP32-17",
        "what a leader stamped does not raise the last append time",
        "storage/partition/append/log_append_time.py",
        (("self._last_ms = max(self._last_ms, header.max_timestamp)", "pass"),),
    ),
    Mutant(
        "KIP32-24",
        "a future CreateTime freezes the append time",
        "storage/partition/append/log_append_time.py",
        (
            (
                "        if header.timestamp_type == LOG_APPEND_TIME:\n            found = header.max_timestamp",
                "        if header.timestamp_type is not None:\n            found = header.max_timestamp",
            ),
        ),
    ),
    Mutant(
        "KIP32-97",
        "the deprecated difference counts for the past only",
        "config.py",
        (("return self.message_timestamp_difference_max_ms if after == INT64_MAX else after", "return after"),),
    ),
    Mutant(
        "ART-3",
        "the documents' name of the limit is not known",
        "config.py",
        (('"max.message.time.difference.ms"', '"max.message.time.difference"'),),
    ),
    Mutant(
        "LOOK-13",
        "another default of index.interval.bytes",
        "config.py",
        (('_integer("index.interval.bytes", 4096,', '_integer("index.interval.bytes", 4095,'),),
    ),
    Mutant(
        "KIP33-50",
        "no warning where the limit is above the roll time",
        "storage/partition/roll_statistics.py",
        (("limit_ms <= config.segment_ms:", "limit_ms >= 0:"),),
    ),
    Mutant(
        "KIP32-137",
        "v2 fetchers get what is stored, whatever it is",
        "broker/fetch/down_conversion.py",
        (
            (
                "    if configured_magic <= magic and _is_known(data, magic):",
                "    if magic or _is_known(data, magic):",
            ),
        ),
    ),
    Mutant(
        "KIP32-131",
        "fetchers of v1 get what is stored, whatever it is",
        "broker/fetch/down_conversion.py",
        (
            (
                "    if configured_magic <= magic and _is_known(data, magic):",
                "    if not magic or _is_known(data, magic):",
            ),
        ),
    ),
    Mutant(
        "KIP32-114",
        "the topic's format does not count",
        "records/validation_rules.py",
        (("            magic=config.magic,\n", ""),),
    ),
]
