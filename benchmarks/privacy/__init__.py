"""What hiding costs: requests, private retrieval, secure aggregation."""
