"""Many analyses: the batch as a variable, curve, largest batch, strategies, comparison, grid; every allocator
side by side."""
