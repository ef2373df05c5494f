"""PaddlePaddle: a captured program under its static-graph executor, garbage collector and allocators."""
