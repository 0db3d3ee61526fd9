"""What runs inside the user's program: the loop, signals, cadence, saving and restoring. No third-party import."""
