"""A trained model at work: exported to other programs, served over HTTP."""
