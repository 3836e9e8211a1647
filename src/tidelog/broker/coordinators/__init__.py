"""The coordinators of groups and of transactions. `state_log` reads and writes their state in the internal topics."""
