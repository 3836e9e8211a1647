"""Transactions (KIP-98): atomic writes to several logs and groups.

| read | for |
|---|---|
| `transactions` | the coordinator: all transactional ids, stored in ``__transaction_state`` |
| `transaction` | one transactional id: its states, and fencing, without I/O |
| `transaction_records` | converts transactional ids to and from Kafka's records |
| `completion` | completes a decided transaction |
| `markers` | transaction markers |
| `ask_coordinator`, `verifications` | ask the coordinator whether a transaction has a partition |
| `producer_id_source` | producer ids, from the folder or in blocks from the controller |
"""
