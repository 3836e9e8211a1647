"""The programs of processes that a bench starts. Each prints one JSON line."""
