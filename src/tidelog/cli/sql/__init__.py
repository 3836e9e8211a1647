"""`tidelog sql`: `command` runs statements, `shell` reads them from a terminal, `completion` completes what is typed."""
