"""What noise costs."""

COUNT, GUESS = "most frequent labels", "random guess"  # lines of a table of scores that have no model
