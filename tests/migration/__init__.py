"""KIP-32's migration plan, played in a cluster of ZooKeeper: brokers of Kafka 0.9.0.1, 0.10.0.1 and 2.4.1, and of ours.

    python -m tests.migration            prints what happens, and draws it: demo/out/migration

| read | for |
|---|---|
| `play` | the plan, step by step |
| `nodes` | a broker that is another release after its next start, with the same folder |
| `clients` | producers and consumers that speak the versions of 0.9.0 and 0.10.0, and run meanwhile |
| `java_clients` | Kafka's own of 0.9.0.1, 0.10.0.1 and 3.9.1, beside them |
| `judge` | what was acknowledged, what is read, which formats lie where |
| `picture` | the formats in the logs, step by step, as SVG |
"""
