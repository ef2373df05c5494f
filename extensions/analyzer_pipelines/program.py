"""A diffusers pipeline built from its configurations, with random weights, and run once.

An ordinary program of diffusers and torch, which `analyze pipeline` follows and a GPU runs:

    python program.py FOLDER --height 480 --width 832 --frames 81 --offload model

1. FOLDER is laid out as `save_pretrained` writes it: `model_index.json` names each component's library and
   class, its folder has the configuration. No weights, no tokenizer's files.
2. Components are of diffusers and transformers alone: a name from any other place is an error, since it
   would import code that a file names.
3. Weights keep the values their memory had: initializing billions of them costs minutes. Buffers are
   computed.
4. Types as `from_pretrained(torch_dtype=...)` leaves them: all floating-point tensors of the type, except
   those a class keeps in float32 (`_keep_in_fp32_modules`: diffusers/models/modeling_utils.py).
5. A tokenizer is replaced by one that returns an id a word: `--tokens` of them for the prompt, besides those
   of a pipeline's template, padded where the pipeline pads.
6. Each component's work is in an NVTX range ("stage vae.decode"), as a profiler would show it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

LIBRARIES = ("diffusers", "transformers")
WORD = re.compile(r"<\|[^|]*\|>|\w+|[^\w ]")  # about what a tokenizer makes one id of
OFFLOADS = ("none", "model", "group", "sequential")


class Tokenizer:
    """Ids of the shapes a tokenizer returns. `length`: the most it returns (`model_max_length`)."""

    pad_token_id = eos_token_id = bos_token_id = 0
    padding_side = "right"
    pad_token = eos_token = bos_token = ""

    def __init__(self, length: int) -> None:
        self.model_max_length = length
        self.added_tokens_encoder: dict[str, int] = {}

    def __call__(
        self, text: Any, *_: Any, padding: Any = False, max_length: int | None = None, **__: Any
    ) -> Any:
        from transformers import BatchEncoding

        texts = [text] if isinstance(text, str) else list(text)
        most = max_length or self.model_max_length
        used = [min(len(self.tokenize(one)) + 2, most) for one in texts]  # and the marks of begin and end
        length = most if padding == "max_length" else max(used)
        mask = torch.zeros(len(texts), length, dtype=torch.long)
        for row, words in enumerate(used):
            mask[row, :words] = 1
        return BatchEncoding({"input_ids": torch.ones_like(mask), "attention_mask": mask})

    def tokenize(self, text: str, **_: Any) -> list[str]:
        return WORD.findall(text)

    def batch_decode(self, ids: Any, *_: Any, **__: Any) -> list[str]:
        return ["word " * len(row) for row in ids]


def _class(library: str, name: str) -> Any:
    """Return a component's class. Raises SystemExit for one of another library."""
    package = library.partition(".")[0]
    if package in LIBRARIES:
        module = importlib.import_module(package)
    else:  # a module of diffusers.pipelines: "stable_diffusion" with the safety checker
        if not library.isidentifier():
            raise SystemExit(f"{library}.{name} is of neither diffusers nor transformers")
        try:
            module = importlib.import_module(f"diffusers.pipelines.{library}")
        except ImportError:
            raise SystemExit(f"{library}.{name} is of neither diffusers nor transformers") from None
    member = getattr(module, name, None)
    if not inspect.isclass(member):
        raise SystemExit(f"{library} {importlib.import_module(LIBRARIES[0]).__version__} has no {name}")
    return member


def _cast(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """Return the model in the type `from_pretrained` gives it."""
    kept = getattr(model, "_keep_in_fp32_modules", None) or ()
    if not kept:
        return model.to(dtype)
    for name, parameter in model.named_parameters():
        is_kept = any(part in name.split(".") for part in kept)
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(torch.float32 if is_kept else dtype)
    return model


def _component(folder: Path, name: str, library: str, kind: str, options: argparse.Namespace) -> Any:
    """Return one component. Raises SystemExit where its configuration is missing."""
    if "Tokenizer" in kind:
        length = 77 if kind.startswith("CLIP") else 512
        return Tokenizer(length)
    if kind.endswith(("Processor", "FeatureExtractor")):
        return _processor(folder / name, library, kind)
    cls = _class(library, kind)
    path = folder / name / ("scheduler_config.json" if "Scheduler" in kind else "config.json")
    if not path.is_file():
        raise SystemExit(f"{path} is missing: {kind} is built from it")
    if library == "transformers":
        from transformers import AutoConfig

        model = (
            cls._from_config(AutoConfig.from_pretrained(path.parent))
            if hasattr(cls, "_from_config")
            else None
        )
        if model is None:
            raise SystemExit(f"{kind} is no model of transformers")
    else:
        model = cls.from_config(json.loads(path.read_text()))
    if not isinstance(model, torch.nn.Module):
        return model
    return _cast(model.eval().requires_grad_(False), getattr(torch, options.dtype))


def _processor(folder: Path, library: str, kind: str) -> Any:
    """Return a processor of images or of text; with its tokenizer replaced."""
    cls = _class(library, kind)
    if (folder / "preprocessor_config.json").is_file() and "ImageProcessor" in kind:
        return cls.from_pretrained(folder)
    if "ImageProcessor" in kind or kind.endswith("FeatureExtractor"):
        return cls()
    tokenizer = Tokenizer(4096)
    tokenizer.tokenizer = tokenizer  # type: ignore[attr-defined]
    return tokenizer


def pipeline(folder: Path, options: argparse.Namespace) -> Any:
    """Return the pipeline. Raises SystemExit for what cannot be built from configurations."""
    index = json.loads((folder / "model_index.json").read_text())
    cls = _class("diffusers", options.pipeline or index["_class_name"])
    wanted = inspect.signature(cls.__init__).parameters
    parts: dict[str, Any] = {}
    for name, value in index.items():
        if name.startswith("_") or name not in wanted:
            continue
        if not isinstance(value, list):
            parts[name] = value
        elif value[0] is None:
            parts[name] = None
        else:
            parts[name] = _component(folder, name, value[0], value[1], options)
    return cls(**parts)


def _ranged(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def within(*args: Any, **kwargs: Any) -> Any:
        torch.cuda.nvtx.range_push(f"stage {name}")
        try:
            return call(*args, **kwargs)
        finally:
            torch.cuda.nvtx.range_pop()

    return within


def name_stages(pipe: Any) -> None:
    """Put each component's work into a range of its name."""
    for name, part in pipe.components.items():
        if not isinstance(part, torch.nn.Module):
            continue
        if hasattr(part, "decode"):
            for method in ("encode", "decode"):
                setattr(part, method, _ranged(f"{name}.{method}", getattr(part, method)))
        else:
            part.forward = _ranged(name, part.forward)


def place(pipe: Any, options: argparse.Namespace) -> None:
    """Put the pipeline onto the GPU, whole or piece by piece."""
    if options.tiling:
        pipe.vae.enable_tiling()
    if options.slicing:
        pipe.vae.enable_slicing()
    if options.lora:
        from peft import LoraConfig

        denoiser = getattr(pipe, "transformer", None) or pipe.unet
        denoiser.add_adapter(LoraConfig(r=options.lora, target_modules=["to_q", "to_k", "to_v", "to_out.0"]))
        _cast(denoiser, getattr(torch, options.dtype))
    if options.offload == "model":
        pipe.enable_model_cpu_offload(device="cuda")
    elif options.offload == "sequential":
        pipe.enable_sequential_cpu_offload(device="cuda")
    elif options.offload == "group":
        pipe.enable_group_offload(
            onload_device=torch.device("cuda"), offload_type="leaf_level", use_stream=True
        )
    else:
        pipe.to("cuda")


def arguments_of(pipe: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Return the call's arguments, those of these that the pipeline has."""
    known = inspect.signature(pipe.__call__).parameters
    prompt = "word " * options.tokens
    arguments = {
        "prompt": prompt if options.batch == 1 else [prompt] * options.batch,
        "height": options.height,
        "width": options.width,
        "num_frames": options.frames,
        "num_inference_steps": options.steps,
        "output_type": options.output,
    }
    image = known.get("image")
    if image is not None and image.default in (None, inspect.Parameter.empty):
        from PIL import Image

        arguments["image"] = Image.new("RGB", (options.width or 512, options.height or 512))
    if "mask_image" in known:
        from PIL import Image

        arguments["mask_image"] = Image.new("L", (options.width or 512, options.height or 512), 255)
    return {name: value for name, value in arguments.items() if value is not None and name in known}


def options_of(words: list[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Run a diffusers pipeline made of its configurations.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pipeline", help="class of diffusers instead of the one model_index.json names")
    for name in ("height", "width", "frames"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--offload", default="none", choices=OFFLOADS)
    parser.add_argument("--tiling", action="store_true")
    parser.add_argument("--slicing", action="store_true")
    parser.add_argument("--lora", type=int, metavar="RANK")
    parser.add_argument("--output", default="np", help="output_type of the call")
    return parser.parse_args(words)


@contextlib.contextmanager
def without_initializing() -> Iterator[None]:
    """While open, new weights stay as their memory was."""
    functions = vars(torch.nn.init)
    kept = {name: functions[name] for name in functions if name.endswith("_") and not name.startswith("_")}
    functions.update(dict.fromkeys(kept, lambda tensor, *_, **__: tensor))
    try:
        yield
    finally:
        functions.update(kept)


def main() -> None:
    import diffusers

    diffusers.utils.logging.set_verbosity_error()  # on tensors kept in float32, of which there are none
    options = options_of()
    with torch.no_grad(), without_initializing():
        pipe = pipeline(options.folder, options)
    name_stages(pipe)
    place(pipe, options)
    pipe.set_progress_bar_config(disable=True)
    pipe(**arguments_of(pipe, options))
    print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)


if __name__ == "__main__":
    main()
