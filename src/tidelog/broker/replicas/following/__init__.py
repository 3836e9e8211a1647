"""Following leaders: requests to them, and what their answers change in the logs here.

| read | for |
|---|---|
| `leader_fetcher` | all that is followed from one leader: a connection, rounds of requests |
| `followed_partitions`, `leader_answers` | which of its partitions have something to do; what its answers do to them |
| `followed_partition` | a partition that is followed: its states, what it asks for, how errors are handled |
| `truncation_rules` | where a follower's log is cut so that it continues its leader's |
| `follower_append` | an answer's records, high watermark and log start, into a log |
| `leader_ends` | where a leader's log, and an epoch in it, starts and ends |
| `fetch_session_client` | what a fetch names of many partitions: the follower's end of KIP-227 |
| `follower_slices` | which fetcher has the next slice of the loop |
"""
