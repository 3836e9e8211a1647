"""The commands, one file each, named after it; imported when it is called.

| module | part of |
|---|---|
| `explain` | `find --explain` |
| `stat_brokers` | `stat HOST:PORT` |
| `dump_log` | `dump FILE.log` |
| `groups_lag` | `groups lag` |
| `kafka_admin` | `handover` |
| `serving` | `serve`: the broker's process from its start to its end |
"""
