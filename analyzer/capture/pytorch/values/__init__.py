"""What is known of values and sizes that only data tells."""
