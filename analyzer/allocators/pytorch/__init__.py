"""PyTorch's caching allocator: ordinary and expandable segments, and its settings."""
