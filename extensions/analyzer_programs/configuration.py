"""A model's configuration: the program that says the same is written, and followed as `analyze run` follows
any other."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from analyzer.analysis import Analysis
from analyzer.devices import stands_in
from analyzer.errors import AnalyzerError, OptionError, TargetError, did_you_mean
from analyzer.options import Options
from analyzer.pipeline.config import recipe_of
from analyzer.recipes.recipe import Recipe, require_packages
from analyzer.recipes.source import script
from analyzer.runtimes.base import UNLIMITED
from analyzer.targets import require_torch
from analyzer_programs.program import Followed, concluded, watched, with_room

# Nothing is fetched, whatever the libraries would like to look up (huggingface_hub/constants.py), and no bars
# are drawn.
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}


_MXFP4_BITS = 4 + 8 / 32  # a weight, and its part of the scale of 32


def followed(
    name: str, options: Options, progress: Callable[[str], None] | None = None, needs: bool = True
) -> Analysis:
    """Follow a configuration's program and return its analysis. needs: also the figures with room.

    It is followed on a card without a limit; whether it runs on the device is then simulated, as of any
    target. Tokens that are extrapolated are not among what can be simulated again: a program that makes some
    is followed on the device, and where that is too small once more without a limit. Raises AnalyzerError.
    """
    require_torch(f"{name} is built by transformers")
    recipe = recipe_of(name, options)
    require_packages(recipe)
    _check_known(recipe)
    options = dataclasses.replace(options, batch=recipe.batch)
    on_device = not stands_in(options.device) and (_makes_tokens(recipe) or not needs)
    analysis, program = _followed(recipe, options, progress, limitless=not on_device)
    if needs and on_device and program.live.retries:
        free, again = _followed(recipe, options, progress, limitless=True)
        if again.ran.error is None:
            analysis = with_room(analysis, free)
    estimate = analysis.estimate
    if options.mode == "train":
        estimate = dataclasses.replace(estimate, optimizer=recipe.optimizer)
    if (stored := _note_on_mxfp4(recipe)) is not None:
        estimate = dataclasses.replace(estimate, notes=(stored, *estimate.notes))
    return dataclasses.replace(analysis, estimate=estimate)


def _followed(
    recipe: Recipe, options: Options, progress: Callable[[str], None] | None, limitless: bool
) -> tuple[Analysis, Followed]:
    """Return the analysis of the recipe's program, and what was followed. Raises AnalyzerError."""
    with _quiet():
        program = _ran(recipe, options, progress, limitless)
    if (
        recipe.adapters is not None
        and not recipe.adapters.targets
        and "`target_modules`" in str(program.ran.error)
    ):
        raise OptionError(
            f"peft {version('peft')} does not know which layers of a {recipe.config.document['model_type']}"
            " get adapters",
            "say which: --lora r=8,targets=all-linear",
        )
    if isinstance(program.ran.error, AnalyzerError):
        raise program.ran.error
    limitless_tokens = _makes_tokens(recipe) and limitless and options.budget is None
    return concluded(
        program, options, recipe.title, recipe.rank, limit=UNLIMITED if limitless_tokens else None
    ), program


def _makes_tokens(recipe: Recipe) -> bool:
    return recipe.mode == "generate" or recipe.task == "grpo"


def _note_on_mxfp4(recipe: Recipe) -> str | None:
    """Return a note on expert weights stored in four bits, which are dequantized here and need not be on the
    GPU (`quantizers/quantizer_mxfp4.py`); else None."""
    if recipe.stored is None or recipe.stored.method != "mxfp4":
        return None
    sentence = (
        f"weights stored as mxfp4 are counted as {recipe.dtype}, to which transformers turns them where it"
        " has no kernels for them (Triton and the package kernels); with these they stay "
    )
    sizes = [
        recipe.config.number(name)
        for name in ("num_local_experts", "hidden_size", "intermediate_size", "num_hidden_layers")
    ]
    if None in sizes:
        return sentence + "a quarter of it"
    weights = 3 * math.prod(
        size for size in sizes if size
    )  # an expert's two halves of the first product, and its second
    return f"{sentence}{weights * _MXFP4_BITS / 8 / 2**30:,.2f} GiB of its {weights * 2 / 2**30:,.2f}"


def _ran(
    recipe: Recipe, options: Options, progress: Callable[[str], None] | None, limitless: bool
) -> Followed:
    """Follow the recipe's program."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(script(recipe), encoding="utf-8")
        return watched(
            program, (), options, _OFFLINE, progress=progress, job=recipe.rank, limitless=limitless
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """While open, silence the libraries' progress bars and warnings."""
    bars = import_module("transformers.utils.logging")
    shown, before = bars.is_progress_bar_enabled(), logging.root.manager.disable
    bars.disable_progress_bar()
    every = import_module("tqdm.std").tqdm  # packages beside transformers draw bars of their own
    drawn = every.__init__
    every.__init__ = lambda bar, *args, **keywords: drawn(bar, *args, **{**keywords, "disable": True})
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
        every.__init__ = drawn
        if shown:
            bars.enable_progress_bar()


def _check_known(recipe: Recipe) -> None:
    """Raises TargetError for a kind of model the installed transformers has no code of."""
    architectures = import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING_NAMES
    kind = recipe.config.document["model_type"]
    if kind not in architectures:
        raise TargetError(
            f"transformers {version('transformers')} has no model of the kind {kind!r}, and code beside a"
            " configuration is not executed",
            did_you_mean(kind, architectures).strip() or "install a release of transformers that has it",
        )
