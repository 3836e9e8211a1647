"""One append, step by step (`appends.Appends`): checks, offsets and timestamps, the write, and its result."""
