"""A module and its step, as options and a training script describe them."""
