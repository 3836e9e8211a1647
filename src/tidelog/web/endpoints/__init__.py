"""The answers, a file for each group of them. Each is a function of the context, the query and the job; it runs on a thread."""
