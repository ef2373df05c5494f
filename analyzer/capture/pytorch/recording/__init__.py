"""How a running program is written down: its storages, values, the places it is at, and the operators it
calls."""
