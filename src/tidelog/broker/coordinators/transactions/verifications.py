"""Asks coordinators on other brokers whether a producer's open transaction has partitions (KIP-890).

Producers of `transaction.version` 2 do not announce their partitions, so for them the coordinator is asked to add the partitions.
Each broker gets one request at a time; further partitions are collected for the next request. Use only on the event loop's
thread.

| the coordinator | the error code for each partition |
|---|---|
| answers | the code in its response |
| cannot be reached | NETWORK_EXCEPTION: retry later |
| does not support verification (before Kafka 3.5) | NONE: the partition cannot be verified |
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import NamedTuple

from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.peers.broker_channels import BrokerChannels
from tidelog.errors import TidelogError, UnsupportedVersionError
from tidelog.model import TopicPartition, partitions_by_topic
from tidelog.wire.error_codes import ErrorCode, known_code
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

logger = logging.getLogger("tidelog.broker")

Codes = dict[TopicPartition, ErrorCode]

ADD_RETRY_MS = 20
ADD_TRIALS = 5
"""The wait between attempts, Kafka's ``add.partitions.to.txn.retry.backoff.ms``, and the number of attempts, which follows
from Kafka's ``add.partitions.to.txn.retry.backoff.max.ms``.
"""

VERSION = 4
"""The first version of AddPartitionsToTxn that can verify partitions and contain several transactions. Version 5 differs only in
the error codes for clients of Kafka 4.0 and later.
"""


class _Question(NamedTuple):
    transaction: AddPartitionsToTxnTransaction
    keys: Collection[TopicPartition]
    answer: asyncio.Future[Codes]


class Verifications:
    """Asks coordinators on other brokers, with one request at a time to each broker."""

    def __init__(self, brokers: BrokerChannels) -> None:
        self._brokers = brokers
        self._log = RetryLog(logger)
        self._waiting: dict[int, list[_Question]] = {}
        """Partitions for the next request, by broker. Each of these brokers has a request in flight."""

    async def ask(
        self,
        broker_id: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        keys: Collection[TopicPartition],
        *,
        is_adding: bool = False,
    ) -> Codes:
        """Ask the coordinator on another broker. Return its result for each partition."""
        transaction = AddPartitionsToTxnTransaction(
            transactional_id,
            producer_id,
            producer_epoch,
            verify_only=not is_adding,
            topics=[AddPartitionsToTxnTopic(name, numbers) for name, numbers in partitions_by_topic(keys).items()],
        )
        question = _Question(transaction, keys, asyncio.get_running_loop().create_future())
        if broker_id in self._waiting:
            self._waiting[broker_id].append(question)
        else:
            self._waiting[broker_id] = []
            self._brokers.begin(self._run(broker_id, [question]), "verification of transactions")
        return await question.answer

    async def _run(self, broker_id: int, questions: list[_Question]) -> None:
        try:
            while questions:
                # A request names each transactional id only once, because its result is found by the id.
                by_id = {question.transaction.transactional_id: question for question in reversed(questions)}
                asked = list(by_id.values())
                self._waiting[broker_id] += [question for question in questions if question not in asked]
                await self._request(broker_id, asked)
                questions, self._waiting[broker_id] = self._waiting[broker_id], []
        finally:
            for question in (*questions, *self._waiting.pop(broker_id)):
                _settle(question, ErrorCode.NETWORK_EXCEPTION)

    async def _request(self, broker_id: int, questions: list[_Question]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[question.transaction for question in questions])
        try:
            answer: AddPartitionsToTxnResponse = await self._brokers.call(broker_id, request, VERSION)
        except UnsupportedVersionError:
            for question in questions:
                _settle(question, ErrorCode.NONE)
            return
        except TidelogError as error:
            self._log.failed("broker %d could not verify transactions: %s", broker_id, error, level=logging.INFO)
            for question in questions:
                _settle(question, ErrorCode.NETWORK_EXCEPTION)
            return
        found = {
            (result.transactional_id, topic.name, one.partition_index): known_code(one.partition_error_code)
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for one in topic.results_by_partition
        }
        missing = known_code(answer.error_code) or ErrorCode.NETWORK_EXCEPTION
        for question in questions:
            codes = {key: found.get((question.transaction.transactional_id, *key), missing) for key in question.keys}
            if not question.answer.done():
                question.answer.set_result(codes)


def _settle(question: _Question, code: ErrorCode) -> None:
    if not question.answer.done():
        question.answer.set_result(dict.fromkeys(question.keys, code))
