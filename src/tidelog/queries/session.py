"""A DuckDB connection whose tables are the topics of a source.

| name | what it is |
|---|---|
| `orders`, `"my.topic"` | a topic: `sources.selection.record_columns`; Kafka's internal topics as JSON |
| `raw.orders` | the same topic with keys, values and headers as bytes, `timestamp_type` and `create_time` |
| `tidelog.records`, `tidelog.raw_records` | all topics that are not internal |
| `tidelog.topics`, `tidelog.partitions`, `tidelog.segments` | `catalog_tables` |
| `moment('yesterday 09:00')` | a time as people write it (`tidelog.times`), in the session's zone |

The prefix `tidelog.` is needed only if a topic has the same name.

Each scan of a table reads what is in the log at that moment. A topic becomes a table only when a statement mentions it, since a
cluster may have thousands. Nothing is written: `statements` refuses statements that write, and DuckDB's configuration is locked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import product
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidelog.clock import Clock, SystemClock
from tidelog.decoding.decodings import Decode, Decodings
from tidelog.errors import InvalidArgumentError, TidelogError, UnknownTopicOrPartitionError
from tidelog.extras import imported_from
from tidelog.formats.paths.file_path import AnyPath
from tidelog.model import METADATA_TOPIC, READ_UNCOMMITTED
from tidelog.near_names import near_topics
from tidelog.queries.catalog_tables import catalog_tables
from tidelog.queries.instances import connected
from tidelog.queries.quick_truncation import QuickTruncation
from tidelog.queries.statements import Statement, statements
from tidelog.queries.topic_reader import TopicReader
from tidelog.queries.topic_scan import TopicScan
from tidelog.sources.bounds import LOG_END
from tidelog.sources.opening import Address, configured
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.selection.record_columns import quoted
from tidelog.times import parse_time
from tidelog.zones import default_zone, find_zone, zone_name

if TYPE_CHECKING:
    import duckdb

_NO_TABLE = re.compile(r"Table with name (?P<name>.+?) does not exist")

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A name that SQL accepts without quotes, unless it is a reserved word."""

_LISTS_TABLES = re.compile(r"\b(show|describe|information_schema|duckdb_\w+|pg_\w+|sqlite_master)\b", re.IGNORECASE)
"""Statements that may list all tables."""

OTHER_TABLES = ("records", "topics", "partitions", "segments")
"""The tables of the schema `tidelog`, besides `raw_records`."""

_SHOW_TABLES = re.compile(r"show\s+tables", re.IGNORECASE)

_SHOWN_TABLES = """
    SELECT concat_ws('.', nullif(schema_name, 'main'), name) AS name FROM (
        SELECT database_name, schema_name, view_name AS name FROM duckdb_views() WHERE NOT internal
        UNION ALL SELECT database_name, schema_name, table_name FROM duckdb_tables() WHERE NOT internal
    ) WHERE database_name IN ('session', 'temp') AND NOT contains(name, ':') ORDER BY ALL
"""
"""What SHOW TABLES is replaced by: names as a query writes them. Only the names of registered Arrow tables have a colon."""

_NOT_A_TIMESTAMP = re.compile(r'timestamp field format: "(?P<text>[^"]+)"')

_OTHER_TABLES = re.compile(rf"\b(tidelog|raw_records|topic|{'|'.join(OTHER_TABLES)})\b", re.IGNORECASE)

_WITHOUT_RESULT = ("CREATE", "DROP", "SET")


class Session:
    """Runs queries over one source. Not thread-safe. Close it after use; relations that it has returned can still be used.

    The options are those of `tidelog.scan`. Raises MissingPackageError without DuckDB, and the errors of `open_source`.
    """

    def __init__(
        self,
        source: Address,
        *,
        isolation: str = READ_UNCOMMITTED,
        until: str = LOG_END,
        time_map_dir: AnyPath | None = None,
        skip_damaged: bool = False,
        config: Mapping[str, object] | None = None,
        tz: str | None = None,
        clock: Clock | None = None,
        decode: Decode | None = None,
    ) -> None:
        with imported_from("sql", "DuckDB"):
            import duckdb  # noqa: F401
        options = {"isolation": isolation, "until": until, "time_map_dir": time_map_dir}
        self.reader = TopicReader(
            configured(source, config),
            {name: value for name, value in options.items() if value is not None},
            skip_damaged=skip_damaged,
            decodings=(Decodings([]) if decode is None else Decodings.of(decode)).with_internal(),
        )
        self.topics: dict[str, list[int]] = {}
        """The topics and their partitions when they were last listed."""
        zone = default_zone() if tz is None else find_zone(tz)
        self.zone = "UTC" if zone is None else zone_name(zone)
        self._clock = SystemClock() if clock is None else clock
        self._tables: set[tuple[str, str]] = set()
        self._has_other_tables = False
        self.connection: duckdb.DuckDBPyConnection = connected(self.zone)
        self.connection.execute("USE session; CREATE SCHEMA raw; CREATE SCHEMA tidelog")
        self._truncation = QuickTruncation(self.connection)
        self._truncation.leave()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Running queries fail. Idempotent."""
        self.connection.close()
        self.reader.close()

    @property
    def scans(self) -> list[TopicScan]:
        """The scans of the last statement."""
        return self.reader.scans

    @property
    def report(self) -> ScanReport:
        """The counts of all scans of the last statement."""
        total = ScanReport()
        for one in self.scans:
            total += one.report
        return total

    def statements(self, text: str) -> list[Statement]:
        """Split a text into statements. Raises InvalidArgumentError for an invalid or refused statement."""
        import duckdb

        try:
            return statements(self.connection, text, self._instant_ms)
        except duckdb.Error as error:
            raise self.translated(error, text) from None

    def relation(
        self, statement: Statement, params: object = None, *, only_plans: bool = False
    ) -> duckdb.DuckDBPyRelation | None:
        """Return a statement's result, which has not been read yet, or None if the statement has none. With `only_plans`, all
        tables are empty.

        Raises InvalidArgumentError for an error in the statement, UnknownTopicOrPartitionError.
        """
        import duckdb

        self.reader.begin(only_plans=only_plans)
        self._make_tables(statement.text)
        query = statement.explained or statement.text
        try:
            self._truncation.leave()
            if statement.kind in _WITHOUT_RESULT:
                self.connection.execute(statement.text, params)
                return None
            if self.zone == "UTC" and "date_trunc" in query.lower():
                self._truncation.enter(query, params)
            text = _SHOWN_TABLES if _SHOW_TABLES.fullmatch(statement.text) else statement.text
            return self.connection.sql(text, params=params)
        except duckdb.Error as error:
            raise self.translated(error, statement.text) from None

    def translated(self, error: Exception, text: str = "") -> BaseException:
        """Return the original error if a scan raised it, and DuckDB or Arrow only passed it on. Otherwise return an
        InvalidArgumentError whose message is DuckDB's error in one line. `text` are the statements that could not be executed.
        """
        if isinstance(error, TidelogError):
            return error
        # Not kept: its traceback refers to this session, and no garbage collector sees that DuckDB refers to the reader.
        failure, self.reader.failure = self.reader.failure, None
        if failure is not None:
            return failure
        message = str(error)
        no_table = _NO_TABLE.search(message)
        if no_table is not None:
            return self._no_table(no_table["name"])
        # The text after an empty line shows the place in the statement.
        lines = message.split("\n\n", 1)[0].splitlines()
        line = " ".join(line.strip() for line in lines if line.strip())
        return InvalidArgumentError(line + (self._moment_hint(line) or self._quotes_hint(text, line)))

    def _moment_hint(self, message: str) -> str:
        """Return a hint if a statement uses a text such as `yesterday 09:00` as a timestamp."""
        found = _NOT_A_TIMESTAMP.search(message)
        if found is not None:
            with suppress(InvalidArgumentError):
                if self._instant_ms(found["text"]):
                    return f"; for such a time, write moment('{found['text']}')"
        return ""

    def _quotes_hint(self, text: str, message: str) -> str:
        """Return a hint if a statement names a topic without the quotes that SQL needs, such as `web-orders` or `order`."""
        import duckdb

        if text:
            self.list_topics()
        for name in sorted(self.topics, key=len, reverse=True):
            is_keyword = f'at or near "{name}"' in message and duckdb.tokenize(name)[0][1] == duckdb.token_type.keyword
            needs_quotes = is_keyword or not PLAIN_NAME.fullmatch(name)
            if needs_quotes and re.search(rf"""(?<!["'\w]){re.escape(name)}(?!["'\w])""", text):
                return f'; in SQL, the topic {name} needs double quotes: "{name}"'
        return ""

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """Execute a query that reads no topic, and return its rows."""
        return self.connection.cursor().execute(text).fetchall()

    def table_names(self) -> list[str]:
        """Return the names of the topics, as last listed, and of the other tables."""
        if not self.topics:
            self.list_topics()
        return [*sorted(self.topics), *(f"tidelog.{name}" for name in OTHER_TABLES)]

    def list_topics(self) -> None:
        """Update `topics`. Raises the errors of `open_source`."""
        self.topics = self.reader.topics()

    def _make_other_tables(self) -> None:
        for name, table in catalog_tables(self.reader.open).items():
            self.connection.register(f"tidelog:{name}", table)
            self.connection.execute(f'CREATE VIEW tidelog.{name} AS FROM "tidelog:{name}"')
        self.connection.register("tidelog:records", self.reader.table(None))
        self.connection.register("tidelog:raw_records", self.reader.table(None, is_raw=True))
        self.connection.execute(
            'CREATE VIEW tidelog.records AS FROM "tidelog:records";'
            'CREATE VIEW tidelog.raw_records AS FROM "tidelog:raw_records";'
            "CREATE MACRO topic(name) AS TABLE SELECT * FROM tidelog.records WHERE topic = name"
        )
        self._has_other_tables = True

    def _instant_ms(self, text: str) -> int:
        return parse_time(text, self._clock, zone=self.zone)

    def _make_tables(self, text: str) -> None:
        """Make tables for the topics that a statement mentions, and drop the tables of deleted topics."""
        self.list_topics()
        folded = text.lower()
        if METADATA_TOPIC in folded:
            self.topics |= self.reader.topics([METADATA_TOPIC])
        lists = _LISTS_TABLES.search(text) is not None
        if not self._has_other_tables and (lists or _OTHER_TABLES.search(text)):
            self._make_other_tables()
        alike = Counter(name.lower() for name in self.topics)
        for schema, name in [*self._tables]:
            if name not in self.topics:
                self._drop(schema, name)
        schemas = ["main", "raw"] if lists or "raw" in folded else ["main"]
        for schema, name in product(schemas, self.topics):
            # SQL ignores the case of names, so such topics are read with `topic('Orders')`.
            if (schema, name) not in self._tables and alike[name.lower()] == 1 and (lists or name.lower() in folded):
                self._make(schema, name)

    def _make(self, schema: str, name: str) -> None:
        is_raw = schema == "raw"
        decoded = None if is_raw else self.reader.decoded_table(name)
        table = self.reader.table(name, is_raw=is_raw) if decoded is None else decoded
        source = f"{schema}:{name}"
        self.connection.register(source, table)
        self.connection.execute(f"CREATE VIEW {schema}.{quoted(name)} AS FROM {quoted(source)}")
        self._tables.add((schema, name))

    def _drop(self, schema: str, name: str) -> None:
        self.connection.execute(f"DROP VIEW IF EXISTS {schema}.{quoted(name)}")
        self.connection.unregister(f"{schema}:{name}")
        self._tables.remove((schema, name))

    def _no_table(self, name: str) -> TidelogError:
        bare = name.strip('"').removeprefix("raw.")
        alike = sorted(topic for topic in self.topics if topic.lower() == bare.lower())
        if len(alike) > 1:
            return InvalidArgumentError(
                f"the names of several topics differ only in case: {', '.join(alike)}", expected=f"from topic('{alike[0]}')"
            )
        near = near_topics(bare, self.topics)
        return UnknownTopicOrPartitionError(f"no topic or table {bare}{near}", path=str(self.reader.address))


def sql(
    query: str,
    source: Address,
    params: object = None,
    *,
    isolation: str = READ_UNCOMMITTED,
    until: str = LOG_END,
    time_map_dir: AnyPath | None = None,
    skip_damaged: bool = False,
    config: Mapping[str, object] | None = None,
    tz: str | None = None,
    clock: Clock | None = None,
    decode: Decode | None = None,
) -> duckdb.DuckDBPyRelation:
    """Query the topics of a folder or a cluster. Return the result as a DuckDB relation, which reads the log when it is used.

    Each relation has a separate DuckDB connection, which lives as long as the relation. It reads the log each time it is
    executed, and then logs a warning about records that are missing from a folder, like `tidelog.scan`. `docs/sql.md` describes
    the tables and the rules.

    Args:
        query: a single statement.
        source: a Kafka data folder, a `LogDir`, or brokers as `host:port`.
        params: the values of `?` or `$name` in the query, as a list or a dict. The whole result is then read into memory.
        isolation: as for `tidelog.scan`.
        until: as for `tidelog.scan`.
        time_map_dir: as for `tidelog.scan`.
        skip_damaged: as for `tidelog.scan`.
        config: as for `tidelog.scan`.
        decode: as for `tidelog.scan`. Then `value.customer` is a column. Without a schema, the newest records determine types.
        tz: the time zone of times without one, and of `date_trunc`. [default: the value of TIDELOG_TZ, else UTC]
        clock: the clock for `moment('-1h')`, by default the machine's. `now()` always uses the machine's clock.

    Raises:
        InvalidArgumentError: an invalid or a refused statement.
        UnknownTopicOrPartitionError: no such topic or table. DataDirNotFoundError, BrokerUnreachableError.
        MissingPackageError: DuckDB is not installed.
        duckdb.Error: raised while the relation is read, with the text of the original error.
    """
    session = Session(
        source,
        isolation=isolation,
        until=until,
        time_map_dir=time_map_dir,
        skip_damaged=skip_damaged,
        config=config,
        tz=tz,
        clock=clock,
        decode=decode,
    )
    found = session.statements(query)
    if len(found) != 1:
        raise InvalidArgumentError("a query must be one statement", found=len(found))
    relation = session.relation(found[0], params)
    if relation is None:
        raise InvalidArgumentError("the statement has no result", found=repr(found[0].text))
    return relation
