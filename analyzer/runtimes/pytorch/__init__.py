"""Eager PyTorch: what a captured program asks of the caching allocator."""
