"""What makes the tables and figures of the papers."""
