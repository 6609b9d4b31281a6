"""Where rounds run: one client after another, or a whole cohort at once."""
