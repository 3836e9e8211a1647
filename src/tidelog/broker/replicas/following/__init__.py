"""Follows leaders: sends requests to them, and applies their responses to local logs.

| read | for |
|---|---|
| `leader_fetcher` | follows one leader: a connection, rounds of requests; slices of the loop, shared by all |
| `followed_partitions`, `leader_answers` | which partitions need work; how responses are applied to them |
| `followed_partition` | a followed partition: its states, its requests, error handling |
| `truncation_rules` | where a follower truncates its log to match its leader's |
| `follower_append` | applies a response's records, high watermark and log start to a log |
| `leader_ends` | asks where a leader's log, or an epoch in it, starts and ends |
| `fetch_session_client` | the follower's side of fetch sessions (KIP-227) |
"""
