"""What hostile clients can do to a model, and what guards it."""
