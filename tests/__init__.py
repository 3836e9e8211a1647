"""The tests, as a package, so that `tests.kafka` (the harness) is importable from the project's root."""
