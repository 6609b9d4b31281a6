"""What noise costs."""
