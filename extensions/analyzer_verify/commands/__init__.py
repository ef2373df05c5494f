"""Commands that touch a GPU."""
