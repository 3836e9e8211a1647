"""What the source needs because Spark runs it in Python processes that Spark starts.

| module | has |
|---|---|
| `kept_memory` | workers that keep the memory of a batch for the next |
| `loaded_modules` | garbage collections that skip objects of loaded modules |
| `once` | notices that are logged once per application |
| `short_errors` | errors with a short stack trace, because Spark shows the stack trace of every exception |
"""
