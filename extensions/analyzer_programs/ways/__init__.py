"""Ways out of an error for want of memory, each followed."""
