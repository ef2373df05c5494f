"""A model's configuration and its options as a recipe, and as the program that says the same."""

from __future__ import annotations

from analyzer.errors import OptionError
from analyzer.options import Options
from analyzer.recipes.config import opened
from analyzer.recipes.recipe import Recipe
from analyzer.recipes.source import script
from analyzer.recipes.stored import stored


def script_of(name: str, options: Options) -> str:
    """Return the program that says the same as the configuration and the options. Raises AnalyzerError."""
    return script(recipe_of(name, options))


def recipe_of(name: str, options: Options) -> Recipe:
    """Return the recipe for a configuration and the options. Raises AnalyzerError."""
    config = opened(name, options.revision)
    stored_weights = stored(config)
    if wrong_options := options.non_config():
        flag = f"--{next(iter(wrong_options)).replace('_', '-')}".replace("--inputs", "--input")
        raise OptionError(
            f"{flag} means nothing for a configuration", f"leave {flag} out (see analyze --help)"
        )
    if options.load_in_4bit and options.load_in_8bit:
        raise OptionError("weights have 4 bits or 8", "leave --load-in-4bit or --load-in-8bit out")
    return Recipe.from_options(config, options, stored_weights)
