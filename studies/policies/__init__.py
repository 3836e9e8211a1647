"""Which timestamp, part 2: retention and rolling under latency and wrong clocks (KIP-32's discussion; KIP-33's rules).

| | |
|---|---|
| `scenarios` | who is late, whose clock is wrong, the settings: the same for all parts |
| `broker` | the messages of a scenario on the real engine, with retention by its own clock: when each one went |
| `lateness` | too early, too long, one cluster only: pure functions over times |
| `rolling_rules` | the four rules of the documents, pure, over arrays |
| `by_hand` | a log as segment boundaries, kept by `storage.partition.retention`: for rules that the engine does not have |
| `preferences` | which timestamp the measurements prefer, by criteria that are stated, and the verdict on KIP-32's cells |
| `measuring`, `moving` | what each case measures |
| `study` | the cases |
| `presenting`, `…_tables`, `argument_table`, `plots` | the chapter |
"""
