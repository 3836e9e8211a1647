"""Work on sockets by threads that never need the interpreter."""
