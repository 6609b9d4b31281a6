"""What shows only after long, at large or under repeated trouble; a command fails with its promise."""
