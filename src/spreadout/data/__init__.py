"""What clients hold, and where it comes from."""
