"""The fastest way to run a job that fits its device: which blocks are computed again, what cannot fit,
and the search among ways of which each is analysed."""
