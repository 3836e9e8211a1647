"""Jobs: work on whole folders and backups, cut into tasks that Spark runs side by side.

    from tidelog.spark import jobs, session

    spark = session("nightly")
    result = jobs.verify_indexes(spark, "/backup/kafka")
    result.rows.where("kind = 'fault'").show()
    print(result.summary)

A job is a function: a session and arguments in, a `JobResult` out. `tidelog job NAME` is the same from the shell, on `local[*]`;
`spark-submit --master ... $(tidelog job --submit-script) NAME ...` is the same on a cluster. `docs/jobs.md` has them all.
"""
