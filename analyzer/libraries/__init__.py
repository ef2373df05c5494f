"""What closed libraries choose, measured."""
