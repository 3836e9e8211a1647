"""Jobs: work on whole folders and backups, cut into tasks that Spark runs side by side.

    from tidelog.spark import session
    from tidelog.spark.jobs.indexes import verify_indexes

    spark = session("nightly")
    result = verify_indexes(spark, "/backup/kafka")
    result.rows.where("kind = 'fault'").show()
    print(result.summary)

A job is a function: a session and arguments in, a `JobResult` out. `tidelog job NAME` is the same from the shell, on `local[*]`;
`spark-submit --master ... $(tidelog job --submit-script) NAME ...` is the same on a cluster. `docs/jobs.md` has them all.

| function | in | command |
|---|---|---|
| `verify_indexes`, `rebuild_indexes` | `indexes` | verify, build, rebuild |
| `migrate` | `migrate` | migrate |
| `look_up` | `lookups` | lookup |
| `latency` | `latency` | latency |
| `lag` | `lag` | lag |
| `retention` | `retention` | retention |
| `replay` | `replay` | replay |
| `cut_at`, `bootstrap` | `bootstrap` | bootstrap |
| `mirror` | `mirror` | mirror |
| `failover` | `failover` | failover |

The other modules are what these share. Each module is imported by itself, so that no job pays for what another one needs.
"""
