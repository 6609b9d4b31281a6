"""Real clients over Flower. Only this room imports Flower."""
