"""Which timestamp, part 2: retention and rolling under latency and wrong clocks (KIP-32's discussion; KIP-33's rules).

| | |
|---|---|
| `scenarios` | the latencies, wrong clocks and settings that all parts share |
| `broker` | runs a scenario on the real engine, with retention by the broker's clock, and records each message's deletion |
| `lateness` | pure functions: deleted too early, kept too long, deleted on one cluster only |
| `rolling_rules` | pure functions over arrays: the documents' four rolling rules |
| `by_hand` | a log as a list of segment boundaries with `storage.partition.retention`, for rules that the engine lacks |
| `preferences` | the timestamp that the measurements prefer, by stated criteria, and the verdicts on KIP-32's cells |
| `measuring`, `moving` | what each case measures |
| `study` | the cases |
| `presenting`, `…_tables`, `argument_table`, `plots` | the chapter |
"""
