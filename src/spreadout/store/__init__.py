"""What stays on disk: checkpoints and run folders."""
