"""TensorFlow: a captured program as a graph of its executor, on its BFC allocator."""
