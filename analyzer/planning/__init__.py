"""Capacity planning: the batch as a variable; curve, largest batch, what-if, comparison, many jobs."""
