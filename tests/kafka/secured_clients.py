"""Client libraries at secured listeners: each produces and consumes a record, or reports an error.

| name | |
|---|---|
| confluent-kafka, kafka-python, aiokafka | this module as a program: what they leave open ends with it |
| java-3.9.1, java-4.2.0 | `java_sources/SecuredProgram.java`: a JVM for all cases of a release |
| franz-go, kafka-go | `go_clients`: built once, as jars are fetched once; without Go they are left out |
| kcat | without it, it is left out |

`kind` says what a client's words mean, so that answers of two brokers can be compared: texts have ports and times in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import aiokafka
import aiokafka.abc
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.kafka.jars import JARS, classpath, made_once
from tests.kafka.java import run_java

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.net.sasl.oauth

    import kafka

_SHORT_S = 8
"""kafka-python never says what is wrong, and tries for as long as it may."""

_GO_FOLDER = Path(__file__).parent / "go_clients"
_JAVA_PROGRAM = Path(__file__).parent / "java_sources" / "SecuredProgram.java"
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True, kw_only=True)
class SecuredUse:
    """A client's settings, and where it connects. Files are PEM, `certificate` and `key` one's own."""

    name: str
    address: str
    protocol: str
    mechanism: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    """Of OAUTHBEARER. Java's clients and kcat make an unsecured one themselves, for `user`."""
    is_signed: bool = False
    """Whether an identity provider's key has signed the token."""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    tls_version: str = ""
    """The only one that is spoken, as Java writes it."""
    topic: str = "events"
    seconds: int = 30
    """The seconds without an answer after which a client gives up."""
    works: bool = True
    """Whether it should."""

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    def context(self) -> ssl.SSLContext:
        """For the clients that take one of Python's."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.tls_version:
            context.minimum_version = context.maximum_version = ssl.TLSVersion[self.tls_version.replace(".", "_")]
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key)
        return context


KINDS: Sequence[tuple[str, str]] = (
    ("works", r"^ok$"),
    ("mechanism", r"(?i)UnsupportedSaslMechanism|unsupported.*mechanism|mechanism.*(not supported|not enabled|unsupported)"),
    ("credentials", r"(?i)SaslAuth|AuthenticationFailed|_AUTHENTICATION|authentication failed|invalid_token"),
    ("certificate", r"(?i)SslAuth|certificate|x509|_SSL\b|SSLV3|unknown.ca|handshake"),
    ("unreachable", r"."),
)
"""What is found first counts."""


def kind(said: str) -> str:
    """Return what a client's words mean."""
    return next(word for word, pattern in KINDS if re.search(pattern, said))


def answers(kind_of_client: str, uses: Sequence[SecuredUse]) -> dict[tuple[str, str], str]:
    """Return what clients of one of `CLIENTS` say of each use, by (client, use's name): "ok", or its error."""
    if kind_of_client in ("go", "kcat") and not shutil.which(kind_of_client):
        return {}
    return dict(CLIENTS[kind_of_client](uses))


def _can(client: str, use: SecuredUse) -> bool:
    """Whether a client has words for it: librdkafka has no versions of TLS, kcat takes tokens from an endpoint only."""
    if client == "kcat" and use.is_signed:
        return False
    return not use.tls_version or client not in ("kcat", "confluent-kafka")


def _said(run: Callable[[SecuredUse], None], use: SecuredUse) -> str:
    try:
        run(use)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "ok"


# --- librdkafka


def _librdkafka(use: SecuredUse) -> dict[str, object]:
    settings: dict[str, object] = {"bootstrap.servers": use.address, "security.protocol": use.protocol}
    if use.mechanism == "OAUTHBEARER":
        settings |= {"sasl.mechanisms": use.mechanism}
    elif use.mechanism:
        settings |= {"sasl.mechanisms": use.mechanism, "sasl.username": use.user, "sasl.password": use.password}
    if use.has_tls:
        settings |= {"ssl.ca.location": use.ca}
        if use.certificate:
            settings |= {"ssl.certificate.location": use.certificate, "ssl.key.location": use.key}
    return settings


def _confluent(use: SecuredUse) -> None:
    errors: list[KafkaError] = []
    settings = _librdkafka(use) | {"log_level": 0, "error_cb": errors.append, "message.timeout.ms": 1000 * use.seconds}
    if use.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (use.token, 4e9, use.user, {})
    producer = Producer(settings)
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    producer.produce(use.topic, b"confluent-kafka", partition=0, on_delivery=delivered)
    for _ in range(20 * use.seconds):
        if producer.flush(0.05) == 0 or _telling(errors):
            break
    if left := _telling(errors) or errors or failed:
        producer.purge()
        raise KafkaException(left[0])
    del settings["message.timeout.ms"]
    consumer = Consumer(settings | {"group.id": "secured", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(use.topic, 0, 0)])
        message = consumer.poll(use.seconds)
        if message is None or message.error() is not None:
            raise KafkaException(message.error() if message is not None else KafkaError(KafkaError._TIMED_OUT))
    finally:
        consumer.close()


def _telling(errors: list[KafkaError]) -> list[KafkaError]:
    return [one for one in errors if kind(f"{one.name()} {one.str()}") != "unreachable"]


def _kcat(use: SecuredUse) -> str:
    settings = _librdkafka(use)
    if use.mechanism == "OAUTHBEARER":
        settings["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
        settings["sasl.oauthbearer.config"] = f"principal={use.user}"
    del settings["bootstrap.servers"]
    command = ["kcat", "-L", "-b", use.address, "-t", use.topic, "-m", str(use.seconds)]
    for name, value in settings.items():
        command += ["-X", f"{name}={value}"]
    said = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if kind(line) != "unreachable":  # It would try until its time is up.
                process.kill()
        status = process.wait()
    return "ok" if status == 0 else "".join(said)


# --- Python's own


class _Token(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


class _AioToken(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def _python_settings(use: SecuredUse) -> dict[str, object]:
    settings: dict[str, object] = {"bootstrap_servers": use.address, "security_protocol": use.protocol}
    if use.has_tls:
        settings["ssl_context"] = use.context()
    if use.mechanism:
        settings["sasl_mechanism"] = use.mechanism
        if use.mechanism != "OAUTHBEARER":
            settings |= {"sasl_plain_username": use.user, "sasl_plain_password": use.password}
    return settings


def _kafka_python(use: SecuredUse) -> None:
    settings = _python_settings(use)
    if use.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _Token(use.token)
    wait_ms = 1000 * (use.seconds if use.works else _SHORT_S)
    producer = kafka.KafkaProducer(max_block_ms=wait_ms, bootstrap_timeout_ms=wait_ms, **settings)
    try:
        producer.send(use.topic, b"kafka-python", partition=0).get(use.seconds)
    finally:
        producer.close(1)
    with contextlib.closing(kafka.KafkaConsumer(auto_offset_reset="earliest", **settings)) as consumer:
        consumer.assign([kafka.TopicPartition(use.topic, 0)])
        assert consumer.poll(wait_ms, max_records=1), "no record"


class _Said(logging.Handler):
    """What this thread logs: aiokafka raises one error for all that may be wrong with a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.lines.append(record.getMessage())


def _aiokafka(use: SecuredUse) -> None:
    said = _Said()
    logger = logging.getLogger("aiokafka")
    logger.addHandler(said)
    try:
        asyncio.run(asyncio.wait_for(_aio(use), use.seconds))
    except Exception as error:
        raise RuntimeError(" ".join([*said.lines, str(error)])) from error
    finally:
        logger.removeHandler(said)


async def _aio(use: SecuredUse) -> None:
    settings = _python_settings(use)
    if use.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = _AioToken(use.token)
    producer = aiokafka.AIOKafkaProducer(**settings)
    try:
        await producer.start()
        await producer.send_and_wait(use.topic, b"aiokafka", partition=0)
    finally:
        await producer.stop()
    async with aiokafka.AIOKafkaConsumer(auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([aiokafka.TopicPartition(use.topic, 0)])
        await consumer.getone()


_PYTHON = (("confluent-kafka", _confluent), ("kafka-python", _kafka_python), ("aiokafka", _aiokafka))


# --- Java's, Go's


def _java(release: str, uses: Sequence[SecuredUse]) -> list[tuple[tuple[str, str], str]]:
    with tempfile.TemporaryDirectory(prefix="secured-") as folder:
        lines = []
        tokens: list[str] = []
        for use in uses:
            settings = {"bootstrap.servers": use.address, "security.protocol": use.protocol}
            if use.mechanism:
                who = f'username="{use.user}" password="{use.password}"'
                if use.mechanism == "OAUTHBEARER":
                    who = "" if use.is_signed else f'unsecuredLoginStringClaim_sub="{use.user}"'
                if use.is_signed:
                    token = Path(folder, f"{len(tokens)}.token")
                    token.write_text(use.token)
                    tokens.append(token.as_uri())
                    settings["sasl.oauthbearer.token.endpoint.url"] = tokens[-1]
                    settings["sasl.login.callback.handler.class"] = _LOGIN
                settings["sasl.mechanism"] = use.mechanism
                settings["sasl.jaas.config"] = f"{_MODULES[use.mechanism]} required {who};"
            if use.has_tls:
                settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": use.ca}
                if use.tls_version:
                    settings["ssl.enabled.protocols"] = use.tls_version
                if use.certificate:
                    own = Path(folder, f"{use.name}.pem")
                    own.write_text(Path(use.key).read_text() + Path(use.certificate).read_text())
                    settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(own)}
            fields = [use.name, use.topic, str(use.seconds), *(f"{name}={value}" for name, value in settings.items())]
            lines.append("\x1f".join(fields))
        Path(folder, "uses").write_text("\n".join(lines))
        files = [Path(folder, "uses"), Path(folder, "answers")]
        run_java(classpath(release), str(_JAVA_PROGRAM), [*files, ",".join(tokens)], heap_mb=1024)
        said = [line.partition("\t") for line in Path(folder, "answers").read_text().splitlines()]
    return [((f"java-{release}", name), answer) for name, _, answer in said]


def _python(uses: Sequence[SecuredUse]) -> list[tuple[tuple[str, str], str]]:
    return _program([sys.executable, "-W", "ignore", "-m", "tests.kafka.secured_clients"], uses)


def _program(command: Sequence[str | Path], uses: Sequence[SecuredUse]) -> list[tuple[tuple[str, str], str]]:
    """Run a program with a JSON list of uses; its answers are a JSON object by "client use"."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([asdict(use) for use in uses], file)
        file.flush()
        done = subprocess.run([*command, file.name], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found = []
    for both, answer in json.loads(done.stdout).items():
        client, _, name = both.partition(" ")
        found.append(((client, name), answer))
    return found


def _kcats(uses: Sequence[SecuredUse]) -> list[tuple[tuple[str, str], str]]:
    with ThreadPoolExecutor(8) as threads:
        asked = [(("kcat", use.name), threads.submit(_kcat, use)) for use in uses if _can("kcat", use)]
        return [(name, answer.result()) for name, answer in asked]


def main(path: str) -> None:
    """Be the three clients of Python."""
    uses = [SecuredUse(**one) for one in json.loads(Path(path).read_text())]
    with ThreadPoolExecutor(24) as threads:
        asked = {
            f"{name} {use.name}": threads.submit(_said, run, use) for use in uses for name, run in _PYTHON if _can(name, use)
        }
    print(json.dumps({name: answer.result() for name, answer in asked.items()}), flush=True)
    os._exit(0)  # Some have threads that go on trying.


def _go(uses: Sequence[SecuredUse]) -> list[tuple[tuple[str, str], str]]:
    mark = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(_GO_FOLDER.iterdir()))).hexdigest()[:16]

    def build(path: Path) -> None:
        subprocess.run(["go", "build", "-o", path, "."], cwd=_GO_FOLDER, check=True, capture_output=True)

    return _program([made_once(JARS / f"go-clients-{mark}", build)], uses)


CLIENTS: dict[str, Callable[[Sequence[SecuredUse]], list[tuple[tuple[str, str], str]]]] = {
    "python": _python,
    "java-3.9.1": lambda uses: _java("3.9.1", uses),
    "java-4.2.0": lambda uses: _java("4.2.0", uses),
    "go": _go,
    "kcat": _kcats,
}
"""With all that OAUTHBEARER needs on Java's class path. Python's are three clients, Go's two."""


if __name__ == "__main__":
    main(sys.argv[1])
