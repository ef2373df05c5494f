"""A model's configuration, and what is said beside it, as the program that says the same."""
