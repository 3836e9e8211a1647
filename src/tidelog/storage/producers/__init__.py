"""A log's producer state: sequences, epochs, transactions, snapshots. Entry point: `producer_state_manager`."""
