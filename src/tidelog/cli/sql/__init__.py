"""`tidelog sql`: `command` runs statements, `shell` reads them from a terminal, `completion` suggests what may come next."""
