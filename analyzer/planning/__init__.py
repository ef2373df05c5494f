"""What follows from analyses: several of them, or one under several settings, side by side."""
