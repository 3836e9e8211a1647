"""The coordinators of groups and of transactions. Their state is in the internal topics; `state_log` reads and writes it."""
