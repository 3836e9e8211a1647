"""Transactions (KIP-98): what several logs and groups are given at once, or not at all.

| read | for |
|---|---|
| `transactions` | the coordinator: all transactional ids, stored in ``__transaction_state`` |
| `transaction` | one of them: its states, fencing. Pure |
| `transaction_records` | transactional ids as Kafka's records, and back |
| `completion` | a decided transaction on its way to its end |
| `markers` | what ends a transaction in a log |
| `ask_coordinator`, `verifications` | whether a transaction has a partition, asked before records go in |
| `producer_id_source` | ids of the folder's own, or in blocks from the cluster's controller |
"""
