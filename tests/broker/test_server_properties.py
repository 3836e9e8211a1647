"""Kafka's server.properties: the format, who each property is for, what is refused. What Java reads is in tests/interop."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.requests.listeners import Listener, parse_address, parse_listeners
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.server_properties import sort_properties
from tidelog.config import LogConfig
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.properties_file import parse_properties, read_properties_file

FILE = r"""
# The name of the broker \
! and this is a comment too
broker.id=3
listeners = PLAINTEXT://:9092 , CONTROLLER://:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
advertised.listeners:PLAINTEXT://broker.example:9092,CONTROLLER://broker.example:9093
process.roles=broker,controller
num.network.threads=3

log.dirs=/var/\
    lib/\
    kafka
num.partitions 12
log.retention.hours=168
log.retention.hours=24
log.segment.bytes=1073741824
compression.type=lz4
offsets.topic.replication.factor=1
zookeeper.connect=localhost\:2181
no.such.property=1
retention.ms=1
"""


class TestFormat:
    def test_a_file_as_kafka_has_it(self, tmp_path):
        path = tmp_path / "server.properties"
        path.write_text(FILE)
        found = read_properties_file(path)
        assert found["log.dirs"] == "/var/lib/kafka"
        assert found["num.partitions"] == "12"
        assert found["log.retention.hours"] == "24"
        assert found["zookeeper.connect"] == "localhost:2181"
        assert found["advertised.listeners"] == "PLAINTEXT://broker.example:9092,CONTROLLER://broker.example:9093"
        assert not any("comment" in key for key in found)

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("key=value", {"key": "value"}),
            ("  key  =  value  ", {"key": "value  "}),
            ("key", {"key": ""}),
            ("key=", {"key": ""}),
            ("=value", {"": "value"}),
            ("key:value", {"key": "value"}),
            ("key value = x", {"key": "value = x"}),
            ("key==value", {"key": "=value"}),
            (r"a\ b\=c=d", {"a b=c": "d"}),
            (r"key=\u00e9\ta\zb\\", {"key": "é\tazb\\"}),
            ("key=a\\\n   b", {"key": "ab"}),
            ("key=a\\\\\nb=c", {"key": "a\\", "b": "c"}),
            ("key=a\\\n#b", {"key": "a#b"}),
            ("key=a\\", {"key": "a"}),
            ("\\\n#b\n\\\n\na=b", {"a": "b"}),
            ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
            ("\f\t# no\n \t\n", {}),
            ("a\\\n=1", {"a": "1"}),
        ],
    )
    def test_lines(self, line, expected):
        assert parse_properties(line) == expected

    @given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=5))
    def test_what_is_escaped_comes_back(self, properties):
        def escaped(text):
            return "".join(f"\\u{unit:04x}" for unit in _utf16(text))

        text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in properties.items())
        assert {_joined(k): _joined(v) for k, v in parse_properties(text).items()} == properties

    @given(st.text())
    def test_any_text_is_read_or_refused(self, text):
        try:
            parse_properties(text)
        except InvalidArgumentError:
            assert "\\u" in text

    def test_a_wrong_escape_names_the_file(self, tmp_path):
        path = tmp_path / "server.properties"
        path.write_text(r"key=\u12")
        with pytest.raises(InvalidArgumentError, match=r"four hex digits.*server\.properties"):
            read_properties_file(path)
        with pytest.raises(StorageError, match="No such file"):
            read_properties_file(tmp_path / "none")

    def test_what_is_no_text_names_the_file(self, tmp_path):
        path = tmp_path / "server.properties"
        path.write_text("node.id=7\n", "utf-16")
        with pytest.raises(InvalidArgumentError, match=r"not a properties file: found a zero byte at position 3, .*server\.prop"):
            read_properties_file(path)


def _utf16(text):
    data = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


def _joined(text):
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


class TestSorting:
    def test_each_property_finds_its_owner(self):
        found = sort_properties(parse_properties(FILE))
        assert found.config.listeners == (Listener("PLAINTEXT", "", 9092, "broker.example", 9092),)
        assert str(found.config.log_dir) == "/var/lib/kafka"
        assert found.config.num_partitions == 12
        assert found.manager == {
            "node.id": "3",
            "retention.ms": 24 * 3600 * 1000,
            "segment.bytes": "1073741824",
            "compression.type": "lz4",
        }
        assert found.unused == (
            "num.network.threads",
            "process.roles",
            "zookeeper.connect",
        )
        assert found.config.offsets_topic_replication_factor == 1
        assert found.unknown == ("no.such.property", "retention.ms")

    def test_a_topics_own_name_counts_where_nobody_can_mean_kafka(self):
        found = sort_properties({"retention.ms": 5, "log.retention.ms": 7, "num.partitions": 2}, topic_names=True)
        assert found.manager == {"retention.ms": 5}
        assert not found.unknown

    def test_the_finest_unit_wins(self):
        given = {"log.retention.minutes": "2", "log.retention.hours": "1", "log.roll.hours": "1", "log.roll.ms": "5"}
        assert sort_properties(given).manager == {"retention.ms": 120_000, "segment.ms": "5"}

    def test_flushes_are_as_often_as_they_are_looked_for(self):
        assert sort_properties({"log.flush.scheduler.interval.ms": "2000"}).manager["flush.ms"] == "2000"
        both = {"log.flush.scheduler.interval.ms": "2000", "log.flush.interval.ms": "9"}
        assert sort_properties(both).manager["flush.ms"] == "9"

    def test_the_largest_batch_is_everybodys(self):
        found = sort_properties({"message.max.bytes": "5000"})
        assert found.config.message_max_bytes == 5000
        assert LogConfig.from_properties(found.manager).max_message_bytes == 5000

    def test_nothing_given(self):
        found = sort_properties({})
        assert found.config == BrokerConfig()
        assert found.config.listeners[0][1:] == ("127.0.0.1", 9092, "127.0.0.1", 9092, "PLAINTEXT")
        assert found[1:] == ({}, (), ())

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("num.partitions", "0"),
            ("num.partitions", "many"),
            ("auto.create.topics.enable", "yes"),
            ("fetch.max.bytes", "1023"),
            ("log.retention.ms", "week"),
            ("node.id", "-2"),
            ("max.connections.per.ip.overrides", "127.0.0.1"),
            ("log.dirs", "/a,/b"),
            ("log.message.timestamp.type", "EventTime"),
        ],
    )
    def test_a_bad_value_is_named(self, name, value):
        with pytest.raises(InvalidArgumentError) as error:
            sort_properties({name: value})
        assert name.removeprefix("log.").split(".")[0] in str(error.value)

    def test_everything_that_the_file_may_set_is_read(self):
        found = BrokerConfig.from_properties(
            {
                "max.connections.per.ip.overrides": "127.0.0.1:5, ::1:7",
                "broker.rack": " r1 ",
                "connections.max.idle.ms": "-1",
                "auto.create.topics.enable": " False ",
            }
        )
        assert found.max_connections_per_ip_overrides == (("127.0.0.1", 5), ("::1", 7))
        assert (found.broker_rack, found.connections_max_idle_ms, found.auto_create_topics_enable) == ("r1", -1, False)


class TestListeners:
    def test_names_and_addresses(self):
        found = parse_listeners(
            {
                "listeners": "INSIDE://10.0.0.1:9092,OUTSIDE://[::1]:0",
                "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
                "advertised.listeners": "OUTSIDE://broker.example:19092",
            }
        )
        assert found == (
            Listener("INSIDE", "10.0.0.1", 9092, "10.0.0.1", 9092),
            Listener("OUTSIDE", "::1", 0, "broker.example", 19092),
        )
        assert found[1].bound(4711) == Listener("OUTSIDE", "::1", 4711, "broker.example", 19092)
        assert Listener("A", "h", 0, "h", 0).bound(5) == Listener("A", "h", 5, "h", 5)

    def test_without_a_host_clients_are_told_the_machines_name(self):
        (found,) = parse_listeners({"listeners": "PLAINTEXT://:9092"})
        assert found.host == ""
        assert found.advertised_host

    def test_as_before_kafka_3(self):
        found = parse_listeners({"host.name": "10.0.0.1", "port": "1234", "advertised.host.name": "b.example"})
        assert found == (Listener("PLAINTEXT", "10.0.0.1", 1234, "b.example", 1234),)
        found = parse_listeners({"advertised.listeners": "PLAINTEXT://b.example:9"})
        assert found == (Listener("PLAINTEXT", "127.0.0.1", 9092, "b.example", 9),)

    @pytest.mark.parametrize(
        ("properties", "what"),
        [
            ({"listeners": "OTHER://:9093"}, "OTHER has no protocol"),
            ({"listeners": "localhost:9092"}, "NAME://host:port"),
            ({"listeners": "PLAINTEXT://h:port"}, "host:port"),
            ({"listeners": "PLAINTEXT://h:65536"}, "65535"),
            ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "duplicate name"),
            ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot connect to"),
            ({"listeners": "C://:1", "controller.listener.names": "C"}, "no listener for clients"),
            ({"listeners": "PLAINTEXT://h:1", "advertised.listeners": "B://h:1"}, "names a listener that is not in listeners"),
        ],
    )
    def test_what_is_refused(self, properties, what):
        with pytest.raises(InvalidArgumentError, match=what):
            parse_listeners(properties)

    @pytest.mark.parametrize(
        ("text", "address"),
        [("9092", ("127.0.0.1", 9092)), (":9092", ("", 9092)), ("[::1]:7", ("::1", 7)), ("b.example:0", ("b.example", 0))],
    )
    def test_an_address(self, text, address):
        assert parse_address(text) == address
