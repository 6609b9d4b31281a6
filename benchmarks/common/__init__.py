"""What every benchmark needs: a command line, a result file, a clock, a federation at its start."""
