"""One program at any batch of a range, from what a few captures say: its numbers as polynomials, its steps,
what it asks about sizes.

Knows the graph alone: what a runtime takes of it is that runtime's (`runtimes/batches.py`).
"""
