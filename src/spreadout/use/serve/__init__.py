"""A trained model over HTTP: JSON in, ranked classes out (extra `[serve]`)."""
