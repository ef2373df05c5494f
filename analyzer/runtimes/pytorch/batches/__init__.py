"""A PyTorch program at any batch: the requests written once, with sizes that scratch rules say for many
batches at once."""
