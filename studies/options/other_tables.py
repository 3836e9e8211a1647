"""The tables behind the comparison, with all measurements."""

from __future__ import annotations

from studies.case import Measurements
from studies.chapter import Cell, Claim, Millis, Table, Verdict
from studies.options import good_things, leader_change, migration, observed, pipeline, replicas, sizes
from studies.options.fetch_response import INDEX_ENTRY_BYTES
from studies.options.option_table import APPEND, CREATE, LATE_TOO, OPTION_1, OPTION_3, percent, verdict
from studies.quantities import show_float, show_millis

SHOWN_SIZES = (0, 16, 100, 1024)


def size_tables(m: Measurements) -> list[Table]:
    """Return a table for each codec: bytes per message by format and value size."""
    tables = []
    for codec in sizes.CODECS:
        rows: list[tuple[Cell, ...]] = []
        for name in sizes.FORMATS:
            cells: list[Cell] = [name]
            for value_bytes in SHOWN_SIZES:
                size = m.value(sizes.PART, codec, name, f"bytes a message, {value_bytes} B")
                over = m.value(sizes.PART, codec, name, f"over v0, {value_bytes} B")
                cells.append(f"{round(size, 2):,.6g} ({over:+,.1f} %)")
            rows.append(tuple(cells))
        tables.append(
            Table(
                f"options-sizes-{codec}",
                f"Bytes of a message, {codec} (over v0)",
                ("Format", *(f"{value_bytes} B values" for value_bytes in SHOWN_SIZES)),
                tuple(rows),
                source="KIP-32 draft 31, Options 1 to 3: message formats, and the concern about overhead",
                assumptions=(
                    f"{sizes.MESSAGES} messages a request, no keys, values of words (seed {sizes.SEED}), CreateTimes"
                    f" {sizes.STEP_MS} ms apart; compressed as one wrapper, v2 as one batch.",
                    f"Option 3's index comes on top: {INDEX_ENTRY_BYTES} bytes for a minute and for a segment's first and last"
                    " message, on each replica and on the way to it; where retention was run, "
                    f"{show_float(_index_bytes(m))} bytes a message.",
                ),
            )
        )
    return tables


def _index_bytes(m: Measurements) -> float:
    return m.value(replicas.RETENTION, replicas.FOLLOWER, LATE_TOO, "index bytes fetched a message")


def size_claims(m: Measurements) -> Table:
    """Return the draft's claims about overhead, with the measured values."""

    def more(codec: str, name: str, value_bytes: int) -> float:
        metric = f"bytes a message, {value_bytes} B"
        return m.value(sizes.PART, codec, name, metric) - m.value(sizes.PART, codec, "v0", metric)

    two = {codec: [more(codec, OPTION_1, size) - more(codec, OPTION_3, size) for size in SHOWN_SIZES] for codec in sizes.CODECS}
    plain, packed = two["uncompressed"], two["gzip"] + two["lz4"]
    now = [more("uncompressed", sizes.V2_LOG_APPEND_TIME, size) - more("uncompressed", sizes.V2, size) for size in SHOWN_SIZES]
    payload = [more("uncompressed", sizes.PAYLOAD, size) - more("uncompressed", OPTION_1, size) for size in SHOWN_SIZES]
    return Table(
        "options-overhead",
        "What a second time costs",
        ("Statement", "Outcome"),
        (
            (
                "Two times in a message",
                Claim(
                    "Two timestamps are an overhead of each message",
                    f"The second one adds {show_float(min(plain))} bytes uncompressed, {min(packed):.2g} to {max(packed):.2g}"
                    " bytes where a wrapper is compressed, because all inner LogAppendTimes are alike",
                    verdict(min(plain) > 0, min(packed) >= 1),
                ),
            ),
            (
                "CreateTime in the payload (option 2)",
                Claim(
                    "It can always be put there",
                    f"At no saving: {show_float(max(payload))} bytes more than both times as fields",
                    verdict(max(payload) >= 0),
                ),
            ),
            (
                "Today, in v2",
                Claim(
                    "One time must be chosen, to save the other's bytes",
                    f"A LogAppendTime batch holds both, {show_float(max(now))} bytes more than one of CreateTime: deltas keep the"
                    " producers' times, the header has the broker's",
                    verdict(max(now) > 0),
                ),
            ),
        ),
        source="KIP-32 draft 31, Option 3; article, 'If CreateTime is required'",
    )


def mirror_table(m: Measurements) -> Table:
    """Return the draft's four steps, with the measured values."""
    case = observed.SHORTEST
    rows: list[tuple[Cell, ...]] = []
    for subject in pipeline.SUBJECTS:
        text = m.text("mirror", case, subject, "steps of a message")
        steps: Cell = text
        if subject == OPTION_1:
            claimed = "(T0, -1) → (T0, T1) → (T0, T1) → (T0, T2)"
            steps = Claim(claimed, text, verdict(text == claimed))
        same = m.value("mirror", case, subject, "CreateTime same in both")
        differs = m.value("mirror", case, subject, "LogAppendTime differs")
        rows.append((subject, steps, percent(same), percent(differs), _lost(same, differs), *_hops(m, subject)))
    return Table(
        "options-mirror",
        "Mirror maker, step by step",
        (
            "Option",
            "(CreateTime, LogAppendTime): sent, appended, copied, appended",
            "CreateTime the same in both clusters",
            "LogAppendTime differs",
            "What a consumer of the target lacks",
            "Hop 1 by the broker",
            "Hop 2 by the broker",
        ),
        tuple(rows),
        source="KIP-32 draft 31, Mirror maker case in detail; downsides of option 2",
        assumptions=(
            f"{int(m.value('mirror', case, OPTION_1, 'messages')):,} messages, one a request; a copy takes 1 s on average.",
        ),
        notes=(
            "'-': the format has no such field. In Kafka's LogAppendTime topics a mirror hands on T1 as if it were CreateTime.",
            "Messages of which leader and follower say different things: "
            f"{int(sum(m.value('mirror', case, one, 'leader and follower differ') for one in pipeline.SUBJECTS))}.",
        ),
    )


def _lost(same: float, differs: float) -> str:
    lacking = [name for name, share in (("CreateTime", same), ("LogAppendTime", differs)) if share == 0]
    return " and ".join(lacking) if lacking else "nothing"


def _hops(m: Measurements, subject: str) -> tuple[Cell, Cell]:
    def hop(which: str) -> Cell:
        found = m.get("latency", observed.SHORTEST, subject, f"{which} hop, mean error")
        return "not known" if found is None or found.value is None else f"{show_millis(found.value)} off"

    return hop("first"), hop("second")


def window_table(m: Measurements) -> Table:
    """Return the share of messages in wrong windows, by latency."""
    rows = [
        (
            subject,
            *(percent(m.value("windows", case, subject, "messages in the wrong window")) for case in observed.CASES),
            f"{m.value('windows', observed.SHORTEST, subject, 'bytes a message'):.0f}"
            if subject not in pipeline.ACCEPTED
            else None,
        )
        for subject in pipeline.SUBJECTS
    ]
    return Table(
        "options-windows",
        "Stream processing: messages in the wrong one-minute window",
        ("Timestamp that applications get", *observed.CASES, "Bytes a message"),
        tuple(rows),
        source="KIP-32 draft 31, Options comparison, Stream processing",
        assumptions=("Columns are mean latencies (exponential), one message a request, so nothing waits for a batch.",),
    )


def latency_table(m: Measurements) -> Table:
    """Return the errors of the latencies and lags that consumers compute."""
    rows = []
    for subject in pipeline.SUBJECTS:
        cells: list[Cell] = [subject]
        for what in ("end-to-end latency", "lag in time"):
            can = m.value("latency", observed.SHORTEST, subject, f"{what} computable") == 1
            cells.append("yes" if can else "no: from the other time")
            cells += [
                Millis(m.value("latency", case, subject, f"{what}, mean error"))
                for case in (observed.SHORTEST, "1 min", observed.WRONG_CLOCKS)
            ]
        rows.append(tuple(cells))
    return Table(
        "options-latency",
        "Latency measurement: mean error of what consumers compute",
        (
            "Option",
            "End-to-end latency",
            "error at 25 ms",
            "at 1 min",
            "at 25 ms, wrong clocks",
            "Lag in time",
            "error at 25 ms ",
            "at 1 min ",
            "at 25 ms, wrong clocks ",
        ),
        tuple(rows),
        source="KIP-32 draft 31, Options comparison, Latency measurement",
        assumptions=(
            f"Consumers read {show_millis(observed.CONSUMER_DELAY_MS)} after the append on average, with right clocks.",
            "Wrong clocks: 1 % of the messages say ten minutes ahead.",
        ),
    )


def migration_table(m: Measurements) -> Table:
    """Return the migration plan's cells: whether messages are converted, and what that costs."""
    codecs = [codec for codec in sizes.CODECS if codec != "uncompressed"]
    rows: list[tuple[Cell, ...]] = []
    for cell in migration.CELLS:
        done = [m.value(migration.PART, codec, cell.subject, "converted") == 1 for codec in codecs]
        what = "recompressed" if cell.kind == "produce" else "down-converted, no zero-copy"
        not_so = "patched in place, not recompressed" if cell.kind == "produce" else "bytes as stored, zero-copy possible"
        claim = Claim(
            what if cell.converts else not_so, what if all(done) else not_so, verdict(all(one == cell.converts for one in done))
        )
        plain = "rebuilt" if m.value(migration.PART, "uncompressed", cell.subject, "converted") else "as it is"
        times = [
            f"{show_float(m.value(migration.PART, codec, cell.subject, 'processor time a message'))} µs"
            f" ({show_float(m.value(migration.PART, codec, cell.subject, 'processor time beside the cheapest'))}x)"
            for codec in sizes.CODECS
        ]
        rows.append((cell.subject, claim, plain, *times))
    shares = [m.value(migration.PART, codec, migration.MIXED, "converted") for codec in sizes.CODECS]
    mixed = Claim(
        "always down-converted",
        f"only v1 messages, {percent(min(shares))} to {percent(max(shares))} of the bytes; v0 ones go out as stored",
        verdict(min(shares) == 1),
    )
    rows.append((migration.MIXED, mixed, *[None] * 4))
    return Table(
        "options-migration",
        "The migration plan: what is converted",
        ("Cell", "Compressed messages", "Uncompressed", *(f"Processor time a message, {codec}" for codec in sizes.CODECS)),
        tuple(rows),
        source="KIP-32 draft 31, Migration plan, phases 1 and 2",
        assumptions=(
            f"Requests of {sizes.MESSAGES} messages of {migration.VALUE_BYTES} bytes; median of repeated runs; x: beside the"
            " cheapest cell of its kind. Copying stored bytes stands for zero-copy, which costs nothing at all.",
        ),
        notes=(
            "v0's inner offsets are absolute and lie inside the compressed bytes: assigning them means recompressing.",
            "Processor times are of this machine; the wire (requests and responses of each version) comes with the broker.",
        ),
    )


def good_things_table(m: Measurements) -> Table:
    """Return the article's lists, each line with its result."""

    def value(case: str, subject: str, metric: str) -> float:
        return m.value(good_things.PART, case, subject, metric)

    def kept(case: str, subject: str, since: str) -> str:
        least, most = (value(case, subject, f"kept after {since}, {which}") for which in ("least", "most"))
        return f"{show_millis(least)} to {show_millis(most)}"

    future, second, third = good_things.FUTURE, "pattern 2", "pattern 3"
    promised = {
        one: [value(case, one, "messages kept as long as promised, from append") for case in good_things.LATENCIES]
        for one in (CREATE, APPEND)
    }
    longest = max(value(case, APPEND, "longest segment") for case in good_things.LATENCIES)
    alike = value(second, APPEND, "segments that begin alike")
    by_making = {one: value(second, one, "messages kept as long as promised, from making") for one in (CREATE, APPEND)}
    rule_back = m.value(leader_change.PART, "clock behind", leader_change.ENGINE_RULE, "steps back")
    plain_back = m.value(leader_change.PART, "clock behind", leader_change.ENGINE_PLAIN, "steps back")
    same = {one: m.value("mirror", observed.SHORTEST, one, "CreateTime same in both") for one in (CREATE, APPEND)}
    wrong_payload = m.value("windows", "1 min", pipeline.PAYLOAD, "messages in the wrong window")
    rows: tuple[tuple[Cell, ...], ...] = (
        (
            "LogAppendTime",
            Claim(
                "The broker is more robust",
                f"One timestamp of next year keeps messages {kept(future, CREATE, 'append')} past retention in a CreateTime"
                f" topic, {kept(future, APPEND, 'append')} in a LogAppendTime one",
                verdict(value(future, APPEND, "kept after append, most") < value(future, CREATE, "kept after append, most")),
            ),
        ),
        (
            "LogAppendTime",
            Claim(
                "It grows monotonically",
                f"{int(rule_back)} steps back when a slower broker takes over, by KIP-32's rule; {int(plain_back)} by the plain"
                f" clock, which Kafka takes. CreateTime, pattern 3: {int(value(third, CREATE, 'steps back'))} batches",
                verdict(rule_back == 0, plain_back == 0),
            ),
        ),
        (
            "LogAppendTime",
            Claim(
                "Retention is deterministic",
                f"Kept for retention.ms and at most a segment more after the append: {percent(min(promised[APPEND]))} of the"
                f" messages, in every case; CreateTime: {percent(min(promised[CREATE]))} to {percent(max(promised[CREATE]))}",
                verdict(min(promised[APPEND]) == 1, min(promised[CREATE]) < 1),
            ),
        ),
        (
            "LogAppendTime",
            Claim(
                "Rolling is deterministic",
                f"No segment spans more than {show_millis(longest)}; but the same messages with other latencies begin"
                f" {percent(alike)} of the segments alike",
                verdict(longest <= replicas.SEGMENT_MS, alike == 1),
            ),
        ),
        (
            "LogAppendTime",
            Claim(
                "CreateTime can always be put into the payload",
                f"{percent(1 - wrong_payload)} of the messages in the right window by the payload's time, for"
                f" {pipeline.PAYLOAD_TIME_BYTES} bytes a message",
                verdict(wrong_payload == 0),
            ),
        ),
        (
            "CreateTime",
            Claim(
                "It is more intuitive",
                "A matter of taste; windows by it are right where clocks are",
                Verdict.NOT_MEASURABLE,
            ),
        ),
        (
            "CreateTime",
            Claim(
                "Users may want retention by when a message was made",
                f"Six hours late, kept past retention after the making: {kept(second, CREATE, 'made')} by CreateTime"
                f" ({percent(by_making[CREATE])} as promised), {kept(second, APPEND, 'made')} by LogAppendTime"
                f" ({percent(by_making[APPEND])})",
                verdict(by_making[CREATE] > by_making[APPEND]),
            ),
        ),
        (
            "CreateTime",
            Claim(
                "It does not change once it has entered the pipeline",
                f"The same in both clusters: {percent(same[CREATE])} of the messages; of a LogAppendTime"
                f" topic's: {percent(same[APPEND])}",
                verdict(same[CREATE] == 1, same[APPEND] == 0),
            ),
        ),
        (
            "Comment",
            Claim(
                "Payloads usually have an event time, so LogAppendTime alone will do",
                f"For windows it does ({percent(wrong_payload)} wrong); brokers can time"
                f" {percent(m.value('latency', observed.SHORTEST, pipeline.PAYLOAD, 'first hop computable'))} of the first hops,"
                " and search, retention and tools go by the append time only",
                verdict(wrong_payload == 0, m.value("latency", observed.SHORTEST, pipeline.PAYLOAD, "first hop computable") == 1),
            ),
        ),
    )
    return Table(
        "options-good-things",
        "The good things about either time",
        ("About", "Said and found"),
        rows,
        source="Article on KIP-32, 'The good things about'",
        assumptions=(
            f"{good_things.HOURS} h of messages on the storage engine, `segment.ms` {show_millis(replicas.SEGMENT_MS)}, retention"
            f" {show_millis(replicas.RETENTION_MS)}; pattern 2: all six hours late; pattern 3: half a day late, half not.",
        ),
    )
