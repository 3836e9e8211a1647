"""Which partitions this broker leads, and rules for them: leadership and its refusals, flushes, checks of batch headers."""
