"""Files of inputs without labels: what a trained model is asked about."""
