"""The colours of every page and picture, light and dark.

Pages have them as variables of their style ("--c0"), pictures by name. `c0` to `c8` are the categories of
memory, `c9` what has none: each pair can be told apart, in both themes.
"""

from __future__ import annotations

LIGHT = {
    "text": "#1b1f24", "dim": "#59636e", "back": "#ffffff", "panel": "#f6f8fa", "line": "#d1d9e0",
    "accent": "#0969da", "yes": "#116329", "no": "#a40e26", "limit": "#cf222e", "reserved": "#9a6700",
    "mark": "#8c959f", "c0": "#4c78a8", "c1": "#9ecae9", "c2": "#f58518", "c3": "#b279a2", "c4": "#54a24b",
    "c5": "#9fe08f", "c6": "#e45756", "c7": "#edc948", "c8": "#9c938f", "c9": "#d0d0d0",
}  # fmt: skip
DARK = {
    "text": "#e6edf3", "dim": "#9198a1", "back": "#0d1117", "panel": "#151b23", "line": "#3d444d",
    "accent": "#4493f8", "yes": "#3fb950", "no": "#ff7b72", "limit": "#ff7b72", "reserved": "#d29922",
    "mark": "#656c76", "c0": "#5b8db8", "c1": "#9fcdea", "c2": "#e07b14", "c3": "#c07fb0", "c4": "#4f9a48",
    "c5": "#97d98a", "c6": "#d9504f", "c7": "#d9b53c", "c8": "#8f8783", "c9": "#565f6b",
}  # fmt: skip
# From the ground up: what stays lies below what comes and goes. The first has `c0`, and so on.
CATEGORIES = (
    "parameters", "buffers", "optimizer state", "gradients", "inputs", "saved for backward", "activations",
    "scratch", "workspace",
)  # fmt: skip
# The lines of a chart, one after the other.
LINES = ("c0", "c2", "c4", "c8", "c6", "c3")


def category(name: str) -> str:
    """Return the name of a category's colour."""
    return f"c{CATEGORIES.index(name) if name in CATEGORIES else len(CATEGORIES)}"


def page_style() -> str:
    """Return the variables of pages: a category's "--c0", a line's "--l0"."""

    def declared(colors: dict[str, str]) -> str:
        lines = {f"l{place}": colors[name] for place, name in enumerate(LINES)}
        return " ".join(f"--{name}: {value};" for name, value in (colors | lines).items())

    return f':root {{ {declared(LIGHT)} }}\n:root[data-theme="dark"] {{ {declared(DARK)} }}'


def picture_style() -> str:
    """Return the style by which a picture drawn in the light colours has the dark ones on a dark screen."""
    rules = (
        f'[{way}="{light}"], [style*="{way}: {light}"] {{ {way}: {DARK[name]} !important }}'
        for name, light in LIGHT.items()
        for way in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"
