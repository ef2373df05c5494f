"""Whole programs: scripts, ranks of a job, generation, each followed as it is."""
