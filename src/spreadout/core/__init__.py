"""What everything stands on: rows and tables, the server's state, optimisers, randomness, files."""
