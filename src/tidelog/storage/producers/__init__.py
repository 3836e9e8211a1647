"""What a log knows of its producers: sequences, epochs, transactions, snapshots. `producer_state_manager` is the way in."""
