"""The GPU a captured program believes in: what it answers for itself, its memory, its streams."""
