"""A run from its description to its folder: build, train, compare, predict, forecast, audit."""
