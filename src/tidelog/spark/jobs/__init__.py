"""Jobs: work on whole data folders and backups, split into tasks that Spark runs in parallel.

    from tidelog.spark import session
    from tidelog.spark.jobs.indexes import verify_indexes

    spark = session("nightly")
    result = verify_indexes(spark, "/backup/kafka")
    result.rows.where("kind = 'fault'").show()
    print(result.summary)

A job is a function of a session and arguments that returns a `JobResult`. `tidelog job NAME` runs it from the shell, on
`local[*]`; `spark-submit --master ... $(tidelog job --submit-script) NAME ...` runs it on a cluster. `docs/jobs.md` has all of
them.

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
| `take_backup`, `restore_backup`, `verify_whole` | `backup` | backup, restore, verify (of a backup) |

All other modules are shared. Each module is imported separately, so that a job does not load what only a different job needs.
"""
