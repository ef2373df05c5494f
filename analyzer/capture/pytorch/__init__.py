"""A program run on a GPU that is not there, and written down as a `Graph`."""
