"""What times: rounds, their parts, and what they grow with."""
