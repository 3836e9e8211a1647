"""KIP-33's five use cases, each on a topic with CreateTime and on one with LogAppendTime, with correct and with wrong clocks.

| module | owns |
|---|---|
| `clusters` | a topic on its cluster, written by the engine; the expected results of searches, by brute force; the skews |
| `searching` | case 1: search by time, the message pair with one CreateTime, the search's guarantees |
| `bootstrap` | case 2: a dumped database, and its last three days |
| `failover` | case 3: from one cluster to another; the document's m1 and m2 |
| `lag` | case 4: lag by time, time to the log's end |
| `latency_metric` | case 5: the broker's latency metric |
| `kip_table` | the KIP's table with the measured result in each cell; its conclusion |
| `details` | the tables and plots behind it |
| `presenting` | the chapter |
"""

from studies.use_cases.study import STUDY

__all__ = ["STUDY"]
