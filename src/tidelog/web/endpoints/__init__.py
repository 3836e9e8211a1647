"""The endpoints, grouped into files. Each is a function of the context, the query and the job, and runs on a thread."""
