"""KIP-32's options 1, 2 and 3, as formats and as broker rules. Each cell of its comparison is measured (`study.STUDY`).

| module | |
|---|---|
| `formats` | the message formats |
| `fetch_response` | the replication of option 3's index |
| `broker` | a leader or follower with an option's rules |
| `sizes` | message sizes in bytes |
| `replicas` | retention and rolling on every kind of replica |
| `pipeline`, `observed` | two clusters and a mirror; what consumers can compute from the timestamps |
| `leader_change` | LogAppendTime after a leader change to a slower clock |
| `migration` | conversions in the two phases of the migration plan |
| `good_things` | the article's arguments for either timestamp |
| `presentation`, `option_table`, `replica_tables`, `other_tables` | the chapter |
"""

from studies.options.study import STUDY as STUDY
