"""PySpark's daemon, which starts Python workers, without the traceback of a worker that has more rows than Spark wants.

`limit`, `take` and `show` close the connection to such a worker. PySpark's own daemon prints the worker's BrokenPipeError,
although nothing is wrong. Spark's property `spark.python.daemon.module` names the daemon.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_serve = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Serve one task and return the worker's exit code. It is 1 if Spark closed the connection, which ends the worker."""
    try:
        return _serve(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
