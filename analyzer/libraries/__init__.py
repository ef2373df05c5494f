"""Measured choices of closed libraries."""
