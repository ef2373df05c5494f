"""The colours of every page and picture, light and dark.

Pages have them as variables of their style ("--c0"), pictures by name. `c0` to `c8` are the categories of
memory, `c9` what has none: each pair can be told apart, in both themes.
"""

from __future__ import annotations

_NAMES = "text dim back panel line accent yes no limit reserved mark c0 c1 c2 c3 c4 c5 c6 c7 c8 c9"
_LIGHT = """
    #1b1f24 #59636e #ffffff #f6f8fa #d1d9e0 #0969da #116329 #a40e26
    #cf222e #9a6700 #8c959f #4c78a8 #9ecae9 #f58518 #b279a2 #54a24b
    #9fe08f #e45756 #edc948 #9c938f #d0d0d0
"""
_DARK = """
    #e6edf3 #9198a1 #0d1117 #151b23 #3d444d #4493f8 #3fb950 #ff7b72
    #ff7b72 #d29922 #656c76 #5b8db8 #9fcdea #e07b14 #c07fb0 #4f9a48
    #97d98a #d9504f #d9b53c #8f8783 #565f6b
"""
LIGHT: dict[str, str] = dict(zip(_NAMES.split(), _LIGHT.split(), strict=True))
DARK: dict[str, str] = dict(zip(_NAMES.split(), _DARK.split(), strict=True))
# From the ground up: what stays lies below what comes and goes. The first has `c0`, and so on.
CATEGORIES = (
    "parameters",
    "buffers",
    "optimizer state",
    "gradients",
    "inputs",
    "saved for backward",
    "activations",
    "scratch",
    "workspace",
)
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
