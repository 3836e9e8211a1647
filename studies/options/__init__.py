"""KIP-32's options 1, 2 and 3 as formats and as brokers' rules, each cell of its comparison from a run (`study.STUDY`).

| module | |
|---|---|
| `formats` | the messages as bytes |
| `fetch_response` | how option 3's index travels |
| `broker` | a leader or follower with an option's rules |
| `sizes` | bytes of a message |
| `replicas` | retention and rolling on every kind of replica |
| `pipeline`, `observed` | two clusters and a mirror; what consumers can do with the times that they see |
| `leader_change` | LogAppendTime under a slower new leader |
| `migration` | conversions in the two phases of the migration plan |
| `good_things` | the article's praise of either timestamp |
| `presentation`, `option_table`, `replica_tables`, `other_tables` | the chapter |
"""

from studies.options.study import STUDY as STUDY
