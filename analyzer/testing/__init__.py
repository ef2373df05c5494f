"""For the tests of other projects: a budget of GPU memory that a test holds a model to, without a GPU."""
