"""Makers of data of the form that programs read: `def maker(folder: Path, **settings)`, tiny, random and deterministic."""
