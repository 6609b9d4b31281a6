"""How good a model is: metrics, the geometry of its classes, when to stop."""
