"""The commands, one file each, named after the command and imported when it is called.

| other module | part of |
|---|---|
| `explain` | `find --explain` |
| `stat_brokers` | `stat HOST:PORT` |
| `dump_log` | `dump FILE.log` |
| `groups_lag` | `groups lag` |
| `serving` | `serve`: the broker's process from start to end |
"""
