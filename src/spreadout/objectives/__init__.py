"""What is minimised: losses, regularisers, and the neighbours and counts they look at."""
