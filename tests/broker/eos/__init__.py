"""Exactly once: transactional copies whose processes and whose broker are killed, and what a crash between two appends leaves.

| module | |
|---|---|
| `processes` | brokers and clients as processes of their own, to be killed, paused, ended |
| `copier` | the program that copies, by librdkafka; by Java's clients it is `tests/kafka/java_sources/TransactionalCopier.java` |
| `copying` | a run of copiers, what is done to them meanwhile, and the count at the end |
| `crash_points` | a data folder as it was after each single append |
"""
