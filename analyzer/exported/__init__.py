"""Exported programs (`.pt2`) opened without running anything that is in the file."""
