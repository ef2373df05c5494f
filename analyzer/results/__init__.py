"""Results as frozen values: an estimate, a verification, a curve, the largest batch, strategies,
differences. Reports show these."""
