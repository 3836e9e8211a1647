"""Produce (0): appends records to logs.

Records are stored in the topic's message format, regardless of the client's format (`records.validation`). A request with acks=1
is answered once the records are in the log, or on disk if `flush.messages` requires that (`flushes`). With acks=-1 it is answered
once they are committed (`replicas.delayed_produce`), which is the same on a standalone broker. With acks=0 there is no response;
after an error the connection is closed, because that is the only sign that the producer can notice.

The checks run in Kafka's order. If the header of any partition's first batch is corrupt, the whole request fails. Otherwise each
partition is refused for the first of these reasons: it is unknown; the version does not allow the records; acks is invalid; the
topic is internal and the client id is not `__admin_client`; another broker leads the partition; too few replicas are in sync
(acks=-1); the log refuses the records (`tidelog.errors`). An error has these fields besides its code:

| refused | log start offset | message, record errors |
|---|---|---|
| before the append; because of size or checksum; because of a disk error | -1 | |
| because another broker leads | -1 | from version 10 on the leader and its address |
| because of individual records | the log's | the refused records, and why |
| for any other reason | the log's | |

Transactional records are accepted if the coordinator confirms that the transaction has the partition (KIP-890;
``transaction.partition.verification.enable=false`` skips this check, as in Kafka). The check is also skipped if the transaction
is already open in the log, unless the producer epoch is new to the log: a client with an invented epoch would block the markers.
The coordinator's errors become these codes for clients:

| the coordinator | clients |
|---|---|
| is loading, or the previous transaction is ending | NOT_ENOUGH_REPLICAS, on which all clients retry |
| finds that the partition was not added | INVALID_TXN_STATE; from version 11 on TRANSACTION_ABORTABLE |
| should add the partition (version 12 and later), but the previous transaction is ending | CONCURRENT_TRANSACTIONS |
| has another producer id or epoch for the transactional id | INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH |
"""

from __future__ import annotations

from struct import Struct
from time import perf_counter
from typing import Any, Final, TypeAlias

from tidelog.broker.coordinators.transactions.ask_coordinator import Asked, ask_coordinator, to_ask
from tidelog.broker.handling.access import may_each, note_allowed
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.produce_refusals import PRODUCE_ACCESS, produce_response, refuse_all, refused_before, refused_by_log
from tidelog.broker.loop.metrics import Counters
from tidelog.broker.node import Node
from tidelog.broker.partitions.header_check import (
    FIRST_V2,
    USUAL,
    HeaderCheck,
    are_plain,
    check_headers_fast,
    check_produced,
    is_of_open_transaction,
)
from tidelog.broker.replicas.delayed_produce import FIRST_WITH_LEADERS, DelayedProduce, Uncommitted, name_leaders
from tidelog.broker.requests.request import Outcome, Request
from tidelog.broker.requests.slices import SLICE_S, Elsewhere, Work, slowly
from tidelog.broker.requests.wide_requests import AT_ONCE, discarded
from tidelog.broker.topics.topics import NO_TOPIC_ID
from tidelog.errors import CorruptBatchError
from tidelog.model import INTERNAL_TOPICS, NO_TIMESTAMP
from tidelog.records.batch import HEADER_BYTES
from tidelog.records.compression import Bytes
from tidelog.security.acl import Operation, ResourceType
from tidelog.storage.partition.append.append_info import AppendWork
from tidelog.storage.partition.append.appends import Prepared, TooMuchAtOnceError
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ACCESS = PRODUCE_ACCESS

MAX_PREPARATIONS: Final = 20
"""The most attempts to prepare records for an exact offset; each time, another append may take that offset first."""

_ANSWERED: Final = (1, -1)
"""The acks of usual requests, most frequent first. Requests with acks=0 are excluded, because they have no response."""

_FEW_BATCHES_BYTES: Final = 1 << 20

_NO_RECORDS: Final[list[Any]] = []
"""The refused records in the response to a usual request: none."""

_NONE: Final = 0
_V2: Final = 2
_MAGIC_END: Final = 17
_read_max_timestamp = Struct(">35xq").unpack_from

_Key: TypeAlias = tuple[str, int]
"""Topic and partition."""

_FIRST_TOLD_TO_ABORT: Final = 11
_FIRST_ADDING: Final = 12

_ENDED: Final = "the transaction ended before its coordinator answered"

_NOT_KNOWN_YET: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Coordinator errors that leave open whether the partition is part of the transaction."""


def handle(node: Node, message: ProduceRequest, request: Request) -> ProduceResponse | Outcome:
    """Append records to their logs, and answer with their offsets."""
    response = node.slices.answer(request, _work(node, message, request, {}, []))
    assert isinstance(response, ProduceResponse | Outcome)
    return response


def answer_usual(node: Node, request: Request, row: list[Any]) -> list[Any] | ProduceResponse | Outcome | Work | None:
    """Answer a usual request: few partitions, no check by a coordinator. Return None for any other request."""
    transactional_id, acks, timeout_ms, topics = row
    version = request.api_version
    if acks not in _ANSWERED or version < FIRST_V2 or (transactional_id is not None and node.permissions is not None):
        return None
    if len(topics) == 1 and len(topics[0][2]) == 1 and transactional_id is None and node.permissions is None:
        plain = _answer_plain(node, request, acks, timeout_ms, topics[0][0], *topics[0][2][0])
        if plain is not None:
            return plain
    count = total_bytes = 0
    for topic, _, partitions in topics:
        for index, records in partitions:
            if not check_headers_fast(records, version) and (
                transactional_id is None or not is_of_open_transaction(node.manager.logs.get((topic, index)), records, version)  # type: ignore[call-overload]
            ):
                return None
            count += 1
            total_bytes += len(records)
    if count != 1 and not (count and total_bytes <= _FEW_BATCHES_BYTES and not node.slices.is_round_full and are_plain(topics)):
        return None
    if node.permissions is not None and not may_each(
        node, request, Operation.WRITE, ResourceType.TOPIC, (topic[0] for topic in topics)
    ):
        return None
    uncommitted: list[Uncommitted] = []
    rows: list[list[Any]] = []
    answers: dict[str, list[PartitionProduceResponse]] = {}
    is_refused = False
    began = perf_counter()
    for topic, _, partitions in topics:
        of_topic: list[PartitionProduceResponse] = []
        for index, records in partitions:
            try:
                answer = append(node, (topic, index), records, USUAL, acks, request.client_id, None, uncommitted)
            except TooMuchAtOnceError:
                assert count == 1  # Plain records never need another thread.
                return None
            is_refused |= answer.error_code != _NONE
            of_topic.append(answer)
            count -= 1
            if count and perf_counter() - began > SLICE_S:
                answers[topic] = of_topic
                note_allowed(node, request, Operation.WRITE, ResourceType.TOPIC, (topic[0] for topic in topics))
                left = [
                    TopicProduceData(
                        name, NO_TOPIC_ID, [PartitionProduceData(*one) for one in sent[len(answers.get(name, ())) :]]
                    )
                    for name, _, sent in topics
                ]
                message = ProduceRequest(transactional_id, acks, timeout_ms, left)
                return _work(node, message, request, answers, uncommitted, is_refused)
        if of_topic:
            answers[topic] = of_topic
    note_allowed(node, request, Operation.WRITE, ResourceType.TOPIC, (topic[0] for topic in topics))
    if uncommitted or is_refused or node.flushes.pending:
        return _held(
            node, ProduceRequest(None, acks, timeout_ms, []), request, produce_response(answers), uncommitted, is_refused
        )
    for topic, of_topic in answers.items():
        fields = [
            [one.index, 0, one.base_offset, one.log_append_time_ms, one.log_start_offset, _NO_RECORDS, None] for one in of_topic
        ]
        rows.append([topic, NO_TOPIC_ID, fields])
    return [rows, 0]


def _answer_plain(
    node: Node, request: Request, acks: int, timeout_ms: int, topic: str, index: int, records: Bytes | None
) -> list[Any] | ProduceResponse | Outcome | None:
    """Answer a request with one plain batch. Return None, before anything has changed, if `answer_usual` must examine it."""
    log = node.manager.logs.get((topic, index))  # type: ignore[call-overload]
    if log is None or records is None or topic in INTERNAL_TOPICS:
        return None
    leadership = node.leadership
    epoch = leadership.epoch_of(log.topic_partition)
    if epoch < 0 or (acks == -1 and leadership.check_in_sync(log)):
        return None
    now_ms = node.clock.now_ms()
    info = log.append_plain_fast(records, epoch, now_ms)
    if info is None:
        return None
    is_uncommitted = not leadership.appended(log) and acks == -1
    node.metrics.appended(topic, info, now_ms)
    if node.flushes.pending or is_uncommitted:
        answer = PartitionProduceResponse(index, _NONE, info.first_offset, info.log_append_time, info.log_start_offset)
        uncommitted = [Uncommitted(answer, log, info.last_offset + 1)] if is_uncommitted else []
        message = ProduceRequest(None, acks, timeout_ms, [])
        return _held(node, message, request, produce_response({topic: [answer]}), uncommitted, False)
    return [[[topic, NO_TOPIC_ID, [[index, 0, info.first_offset, -1, info.log_start_offset, _NO_RECORDS, None]]]], 0]


def _work(
    node: Node,
    message: ProduceRequest,
    request: Request,
    answers: dict[str, list[PartitionProduceResponse]],
    waiting: list[Uncommitted],
    is_refused: bool = False,
) -> Work:
    """Handle any decoded request. `answers` are the results of partitions that have already been appended.

    Partitions are appended one after the other. Appended records stay, even if a later partition fails.
    """
    began = perf_counter()
    acks = message.acks
    # If a partition is named twice, its last records count, as in Kafka.
    sent: dict[_Key, Bytes] = {}
    has_null = False
    for topic in message.topic_data:
        for data in topic.partition_data:
            has_null |= data.records is None
            sent[topic.name, data.index] = data.records or b""
            if len(sent) % AT_ONCE == 0:
                yield None
    # The records of a wide request are in separate memory, which is not reused.
    is_kept = len(sent) >= AT_ONCE
    try:
        if is_kept:
            looks = yield from slowly(
                (check_produced(records, request.api_version) for records in sent.values()),
                64,
            )
        else:
            looks = [check_produced(records, request.api_version) for records in sent.values()]
    except CorruptBatchError as error:
        return refuse_all(sent, acks, ErrorCode.CORRUPT_MESSAGE, error.message)
    is_transactional = False
    producers: set[tuple[int, int]] = set()
    for count, look in enumerate(looks):
        if look is not USUAL:
            is_transactional |= look.is_transactional
            if look.producer is not None and not look.error_code:
                producers.add(look.producer[:2])
        if is_kept and count % 1024 == 1023:
            yield None
    if message.transactional_id is None and is_transactional:
        return refuse_all(sent, acks, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if has_null:
        return refuse_all(sent, acks, ErrorCode.UNKNOWN_SERVER_ERROR)
    if len(producers) > 1:
        return refuse_all(sent, acks, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "records of several producers in one request")
    asked: dict[_Key, Asked] = {}
    is_adding = request.api_version >= _FIRST_ADDING
    is_verified = node.peers is not None and node.config.transaction_partition_verification_enable
    if producers and (is_verified or is_adding):
        unknown = to_ask(node.manager.logs, node.leadership, dict(zip(sent, looks, strict=True)), is_adding=is_adding)
        if unknown is not None:
            if not is_kept:  # The coordinator may be another broker. While it answers, other requests are read into this memory.
                is_kept = True
                _keep(sent, next(iter(sent)))
            asked = yield from ask_coordinator(node.transactions, message.transactional_id or "", unknown, is_adding=is_adding)
    for key, look in zip(tuple(sent), looks, strict=True):
        prepared: Prepared | None = None
        answer: PartitionProduceResponse | None = None
        for _ in range(MAX_PREPARATIONS):
            try:
                if look.producer is not None:
                    answer = _append_verified(node, key, sent[key], look, message, request, prepared, waiting, asked.get(key))
                else:
                    answer = append(node, key, sent[key], look, acks, request.client_id, prepared, waiting)
                break
            except TooMuchAtOnceError:
                if not is_kept:
                    is_kept = True
                    _keep(sent, key)
                log = node.manager.logs[key]  # type: ignore[index]  # It has just refused.
                try:
                    prepared = yield Elsewhere(log.prepare_append(sent[key], node.leadership.epoch_of(log.topic_partition)))
                except Exception as error:
                    answer = refused_by_log(key, log, error)
                    break
        if answer is None:  # Each time, another client's records took the offset.
            answer = PartitionProduceResponse(key[1], ErrorCode.REQUEST_TIMED_OUT, -1)
        is_refused |= answer.error_code != _NONE
        answers.setdefault(key[0], []).append(answer)
        if is_kept:
            yield None
        elif perf_counter() - began > SLICE_S:
            is_kept = True
            _keep(sent, key)
            yield None
    if is_kept:
        yield from discarded(message, sent, looks)
    if acks == 0:
        return Outcome.CLOSE if is_refused else Outcome.NOTHING
    return _held(node, message, request, produce_response(answers), waiting, is_refused)


def _held(
    node: Node,
    message: ProduceRequest,
    request: Request,
    response: ProduceResponse,
    uncommitted: list[Uncommitted],
    is_refused: bool,
) -> ProduceResponse | Outcome:
    """Return the response, or arrange to send it once the records are committed or on disk."""
    if is_refused and not uncommitted and request.api_version >= FIRST_WITH_LEADERS:
        name_leaders(node, request, response)
    if uncommitted:
        return DelayedProduce(node, request, response).wait_for(uncommitted, message.timeout_ms)
    return node.flushes.hold(request, response) if node.flushes.pending and message.acks == 1 else response


def _keep(sent: dict[_Key, Bytes], first: _Key) -> None:
    """Copy the records of partition `first` and all later partitions, because their memory will be reused."""
    is_due = False
    for key, records in sent.items():
        is_due |= key == first
        if is_due:
            sent[key] = bytearray(records)


def _append_verified(
    node: Node,
    key: _Key,
    records: Bytes,
    look: HeaderCheck,
    message: ProduceRequest,
    request: Request,
    prepared: Prepared | None,
    uncommitted: list[Uncommitted],
    asked: Asked | None,
) -> PartitionProduceResponse:
    """Append records if the coordinator confirms the partition. `asked` is its result, None if it was not asked."""
    log = node.manager.logs.get(key)  # type: ignore[call-overload]
    producer = look.producer
    assert producer is not None
    is_adding = request.api_version >= _FIRST_ADDING
    if log is None or look.error_code or not (node.config.transaction_partition_verification_enable or is_adding):
        return append(node, key, records, look, message.acks, request.client_id, prepared, uncommitted)
    state = log.producer_state
    entry = state.last_entry(producer.producer_id)
    if entry is not None and entry.has_open_transaction and producer.producer_epoch <= entry.producer_epoch:
        return append(node, key, records, look, message.acks, request.client_id, prepared, uncommitted)
    if asked is None and (node.peers is not None or is_adding):
        # This broker did not lead the partition when the others were verified.
        return PartitionProduceResponse(
            key[1], node.leadership.refusal(log.topic_partition) or ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        )
    if asked is None:
        # Later records must not be appended before the first ones: see `verification_state_entry`.
        state.maybe_create_verification(producer.producer_id, producer.base_sequence, producer.producer_epoch)
        code = node.transactions.verify(
            message.transactional_id or "", producer.producer_id, producer.producer_epoch, log.topic_partition
        )
    else:
        code = asked.code
        if code is ErrorCode.NONE and state.verification(producer.producer_id) is not asked.guard:
            # A marker has ended the transaction in the meantime.
            return PartitionProduceResponse(key[1], ErrorCode.INVALID_TXN_STATE, -1, error_message=_ENDED)
    if code is ErrorCode.NONE:
        answer = append(node, key, records, look, message.acks, request.client_id, prepared, uncommitted)
        if not answer.error_code:  # Duplicates wait as well, although the log does not write them again.
            state.clear_verification(producer.producer_id)
        return answer
    # As in Kafka, self-explanatory codes have no message.
    why = None
    if code in _NOT_KNOWN_YET and not (is_adding and code is ErrorCode.CONCURRENT_TRANSACTIONS):
        why = f"the coordinator cannot say whether the partition is part of the transaction: {code.name}"
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    elif code is ErrorCode.TRANSACTION_ABORTABLE and request.api_version < _FIRST_TOLD_TO_ABORT:
        why = "the partition was not added to the transaction"
        code = ErrorCode.INVALID_TXN_STATE
    return PartitionProduceResponse(key[1], code, -1, error_message=why)


def append(
    node: Node,
    key: _Key,
    records: Bytes,
    look: HeaderCheck,
    acks: int,
    client_id: str | None,
    prepared: Prepared | None,
    uncommitted: list[Uncommitted],
) -> PartitionProduceResponse:
    """Append one partition's records, or return an error. Raises TooMuchAtOnceError if another thread must prepare them.

    With acks=-1, records that are not committed yet are added to `uncommitted`; the response must wait for them.
    """
    log = node.manager.logs.get(key)  # type: ignore[call-overload]  # a pair is as good as a TopicPartition, and sooner made
    if log is None or look is not USUAL or not -1 <= acks <= 1 or key[0] in INTERNAL_TOPICS:
        code = refused_before(node, key, log, look, acks, client_id)
        if code is not None:
            return PartitionProduceResponse(key[1], code, -1)
    assert log is not None
    leadership = node.leadership
    epoch = leadership.epoch_of(log.topic_partition)
    if epoch < 0 or acks == -1:
        code = leadership.refusal(log.topic_partition) if epoch < 0 else leadership.check_in_sync(log)
        if code:
            return PartitionProduceResponse(key[1], code, -1)
    try:
        # A LogAppendTime topic overwrites the timestamps.
        is_v2 = len(records) > HEADER_BYTES and records[_MAGIC_END - 1] == _V2
        created_ms = _read_max_timestamp(records)[0] if is_v2 else NO_TIMESTAMP
        info = log.append_as_leader(records, epoch, is_hurried=True, prepared=prepared)
        if info.size_bytes:
            is_committed = leadership.appended(log)
            node.metrics.appended(key[0], info, node.clock.now_ms(), created_ms)
        else:
            is_committed = log.high_watermark > info.last_offset
        if info.work is not None:
            _count(node.metrics.counters, info.work)
    except TooMuchAtOnceError:
        raise
    except Exception as error:
        return refused_by_log(key, log, error)
    answer = PartitionProduceResponse(key[1], _NONE, info.first_offset, info.log_append_time, info.log_start_offset)
    if acks == -1 and not is_committed:
        uncommitted.append(Uncommitted(answer, log, info.last_offset + 1))
    return answer


def _count(counters: Counters, work: AppendWork) -> None:
    counters.decompressed_batches += work.is_decompressed
    counters.recompressed_batches += work.is_recompressed
    counters.up_converted_batches += work.is_converted


API = Api(ProduceRequest, ProduceResponse, Versions(0, 12), ACCESS, handle, answer_usual)
