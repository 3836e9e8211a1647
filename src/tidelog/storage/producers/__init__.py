"""The producer state of a log: sequences, epochs, transactions, snapshots. Entry point: `producer_state_manager`."""
