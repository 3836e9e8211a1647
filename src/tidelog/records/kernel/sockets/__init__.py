"""Threads that work on sockets without the interpreter."""
