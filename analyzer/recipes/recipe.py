"""The job of a configuration: the task, the sizes, loading, adapters, quantization, training or generation.

Names are those of the libraries that do it: tasks of transformers' pipelines, optimizers of its
`TrainingArguments.optim` (`transformers/training_args.py`, `OptimizerNames`), caches of its `generate`, the
fields of peft's `LoraConfig`.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, fields

from analyzer import parallelism
from analyzer.errors import MissingPackageError, OptionError, did_you_mean, install
from analyzer.options import Options, OverridableDefault, Task
from analyzer.parallelism import Parallelism
from analyzer.ranks import Rank
from analyzer.recipes.config import ModelConfig
from analyzer.recipes.stored import Stored
from analyzer.recipes.trainers import TRAINERS

# Trainer's default (`training_args.py`, `default_optim`, with torch 2.8 or newer).
DEFAULT_OPTIMIZER = "adamw_torch_fused"
_LENGTH = 512  # tokens of a sequence by default
_BITS = {"8bit": 8, "32bit": 32}
_BNB = ("adamw", "lion", "ademamix", "rmsprop_bnb")
_TORCH = {
    "adamw_torch": "torch.optim.AdamW(trained, lr=1e-4)",
    "adamw_torch_fused": "torch.optim.AdamW(trained, lr=1e-4, fused=True)",
    "sgd": "torch.optim.SGD(trained, lr=1e-4)",
    "adagrad": "torch.optim.Adagrad(trained, lr=1e-4)",
    "rmsprop": "torch.optim.RMSprop(trained, lr=1e-4)",
    "adafactor": "Adafactor(trained, lr=1e-4, scale_parameter=False, relative_step=False)",
}
_SAME = {
    "adamw": "adamw_torch",
    "adamw_fused": "adamw_torch_fused",
    "adamw_bnb_8bit": "adamw_8bit",
    "paged_adamw": "paged_adamw_32bit",
    "rmsprop_bnb": "rmsprop_bnb_32bit",
    "ademamix": "ademamix_32bit",
}
OPTIMIZERS = (
    *_TORCH,
    *_SAME,
    *(
        f"{paged}{kind}_{bits}"
        for kind in _BNB
        for bits in _BITS
        for paged in ("", "paged_")
        if (kind, paged) != ("rmsprop_bnb", "paged_") and (kind, paged, bits) != ("adamw", "", "32bit")
    ),
)
_ADAPTERS = {"r": int, "alpha": int, "dropout": float}


@dataclass(frozen=True, slots=True)
class Lora:
    """peft's `LoraConfig`. targets: module names, ("all-linear",), or () for peft's own choice."""

    r: int = 8
    alpha: int = 8
    dropout: float = 0.0
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Options):
    """Everything the generated program depends on: the options, with nothing left open, and the
    configuration.

    length, new_tokens: tokens (samples of audio, for a model with raw audio). parallel: the batch is one
        rank's; with "fsdp2" the model is made without memory, sharded block by block, and only then takes
        this rank's share.
    load: "device-map": `from_pretrained(device_map=...)`; "cpu": loaded there, then `.cuda()`; "gpu": made
        on the GPU in float32 and cast, as scripts without a checkpoint do.
    stored: how the checkpoint's weights are quantized, where the configuration says they are. dequantize:
        turned back while loaded.
    """

    task: Task
    batch: int
    length: int
    dtype: str
    optimizer: str
    config: ModelConfig
    stored: Stored | None = None

    @classmethod
    def from_options(cls, config: ModelConfig, options: Options, stored: Stored | None) -> Recipe:
        """Return the recipe of these options, with defaults for those not given. Raises OptionError."""
        chosen = options.optimizer
        if chosen is not None and not isinstance(chosen, str):
            raise OptionError("the optimizer of a configuration is a name", "such as adamw_torch")
        open_before = {
            "task": options.task or task_of(config),
            "batch": options.batch or 1,
            "length": length_of(config, options.length),
            "dtype": options.dtype or config.dtype,
            "optimizer": optimizer_named(
                DEFAULT_OPTIMIZER if chosen is None or isinstance(chosen, OverridableDefault) else chosen
            ),
            "dequantize": options.dequantize or (stored is not None and stored.method == "mxfp4"),
        }
        fields_given = {entry.name: getattr(options, entry.name) for entry in fields(options)}
        return cls(**{**fields_given, **open_before}, config=config, stored=stored)

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        train, generate, parallel = self.mode == "train", self.mode == "generate", self.ranks
        for flag, is_given, mode in (
            ("--lora", self.adapters, "train"),
            ("--gradient-checkpointing", self.gradient_checkpointing, "train"),
            ("--cache", self.cache, "generate"),
            ("--sample", self.sample, "generate"),
            ("--prefill-chunk", self.prefill_chunk, "generate"),
        ):
            if is_given and mode != self.mode:
                raise OptionError(f"{flag} means nothing with --mode {self.mode}", f"add --mode {mode}")
        if self.task in TRAINERS:
            self._check_trainer()
        for flag, is_given, task in (
            ("--packed", self.packed, "sft"),
            ("--precompute-reference", self.precompute_reference, "dpo"),
        ):
            if is_given and self.task != task:
                raise OptionError(f"{flag} means nothing with --task {self.task}", f"it is for --task {task}")
        hears = self.task == "speech" and "num_mel_bins" in self.config.document
        if generate and not hears and self.task not in ("causal-lm", "seq2seq"):
            raise OptionError(f"a {self.task} model does not generate tokens", "use --mode infer")
        if parallel is not None:
            self._check_parallel(parallel)
        if self.stored is not None:
            self._check_stored(self.stored)
        elif self.dequantize:
            raise OptionError(
                "--dequantize is for a configuration whose weights are stored quantized", "leave it out"
            )
        if self.bits and self.load != "device-map":
            raise OptionError(
                f"weights of {self.bits} bits are made while they are loaded onto the GPU", "leave --load out"
            )
        if self.bits and train and self.lora is None:
            raise OptionError(
                f"weights of {self.bits} bits are not trained: adapters beside them are", "add --lora r=16"
            )

    def _check_stored(self, stored: Stored) -> None:
        """Raise OptionError for what cannot be done with stored quantized weights."""
        if self.bits:
            raise OptionError(
                f"the configuration's weights are stored as {stored.method} already",
                "leave --load-in-... out",
            )
        if self.dequantize and not stored.dequantizes:
            raise OptionError(
                f"{stored.method} weights are not turned back while they are loaded", "leave --dequantize out"
            )
        if self.load == "gpu" or self.sharded:
            raise OptionError(
                f"weights stored as {stored.method} are loaded from their checkpoint",
                "leave --load gpu and --parallel fsdp2 out, or take quantization_config out of a copy of the"
                " configuration",
            )
        if self.task in TRAINERS:
            raise OptionError(
                f"weights stored as {stored.method} are not followed under --task {self.task}",
                "use --task causal-lm",
            )
        if self.mode == "train" and not (self.lora and stored.trains) and not self.dequantize:
            raise OptionError(
                f"weights stored as {stored.method} are not trained"
                + (": adapters beside them are" if stored.trains else ", nor are adapters beside them"),
                "add --lora r=16"
                if stored.trains
                else "add --dequantize, which turns them back while they are loaded",
            )

    @property
    def adapters(self) -> Lora | None:
        """peft's adapters. Raises OptionError where `lora` says none."""
        return None if self.lora is None else parse_lora(self.lora)

    @property
    def bits(self) -> int | None:
        """Bits of a weight under bitsandbytes, None where it is not told to quantize."""
        return 4 if self.load_in_4bit else 8 if self.load_in_8bit else None

    @property
    def made_tokens(self) -> int:
        """Tokens the program generates."""
        return self.new_tokens if self.mode == "generate" or self.task == "grpo" else 0

    @property
    def ranks(self) -> Parallelism | None:
        """How the model is spread over ranks, None for one process."""
        return None if self.parallel is None else parallelism.parse(self.parallel)

    @property
    def sharded(self) -> bool:
        """Whether FSDP2 shards the model."""
        return self.ranks is not None and self.ranks.kind == "fsdp2"

    @property
    def in_bits(self) -> bool:
        """Whether bitsandbytes' modules hold the weights."""
        return self.bits is not None or (self.stored is not None and self.stored.trains)

    def _check_trainer(self) -> None:
        """Raise OptionError for what TRL's trainer cannot do."""
        if self.mode != "train":
            raise OptionError(f"{self.task} is a way to train", "add --mode train")
        if self.parallel is not None:
            raise OptionError(
                f"--task {self.task} is followed on one GPU", "leave --parallel out, or use a script"
            )
        if self.task == "grpo" and self.batch < 2:
            raise OptionError(
                "grpo compares completions of a prompt: --batch is their number", "give --batch 2 or more"
            )
        if self.task == "dpo" and self.length < 4:
            raise OptionError("a prompt and an answer share --length", "give --length 4 or more")

    @property
    def has_reference(self) -> bool:
        """Whether there is a second model, which is not trained."""
        return self.task == "dpo" and self.lora is None and not self.precompute_reference

    def _check_parallel(self, parallel: Parallelism) -> None:
        """Raise OptionError for what a configuration's parallel program cannot do."""
        settings = {
            "ddp": {"bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "find_unused_parameters"},
            "fsdp2": {"mixed", "reduce_dtype", "reshard_after_forward"},
        }
        if parallel.kind not in settings:
            raise OptionError(
                f"a configuration is not spread by {parallel.kind}",
                "ddp:GPUS or fsdp2:GPUS; a script may do others",
            )
        if other := parallel.settings.keys() - settings[parallel.kind] - {"rank"}:
            raise OptionError(
                f"--parallel {parallel.text!r}: {other.pop()} is not for a configuration",
                f"settings: {', '.join(sorted(settings[parallel.kind]))}",
            )
        if self.mode != "train":
            raise OptionError("--parallel of a configuration is for training", "add --mode train")
        if parallel.kind == "fsdp2" and (self.bits or self.load != "device-map"):
            raise OptionError(
                "a sharded model is made without memory first", "leave --load and --load-in-... out"
            )
        if self.grad_accumulation > 1:
            raise OptionError("micro-batches of a spread configuration are not followed", "leave them out")

    @property
    def rank(self) -> Rank | None:
        """The rank that is shown, None for one process."""
        return self.ranks.rank if self.ranks else None

    @property
    def optimizer_call(self) -> str:
        """Source code that makes the optimizer of the parameters `trained`."""
        name = _SAME.get(self.optimizer, self.optimizer)
        if name in _TORCH:
            return _TORCH[name]
        kind, _, bits = name.removeprefix("paged_").rpartition("_")
        class_name = {"adamw": "AdamW", "lion": "Lion", "ademamix": "AdEMAMix", "rmsprop_bnb": "RMSprop"}[
            kind
        ]
        paged = ", is_paged=True" if name.startswith("paged_") else ""
        return f"bitsandbytes.optim.{class_name}(trained, lr=1e-4, optim_bits={_BITS[bits]}{paged})"

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages the program imports besides torch."""
        wanted = {
            "transformers": True,
            "accelerate": self.load == "device-map",
            "peft": self.lora is not None,
            **dict.fromkeys(self.stored.packages if self.stored else (), True),
            "bitsandbytes": self.in_bits or (self.mode == "train" and "bitsandbytes" in self.optimizer_call),
            "hqq": self.cache == "quantized",
            "trl": self.task in TRAINERS,
            "datasets": self.task in TRAINERS,
        }
        return tuple(name for name, needed in wanted.items() if needed)

    @property
    def title(self) -> str:
        """The target in a report: the configuration, and the sizes its figures hang on."""
        tokens = f", {self.made_tokens:,} new tokens" if self.made_tokens else ""
        return f"{self.config.name} ({self.task}, length {self.length:,}{tokens})"


# Of this project's extra `llm` (`pyproject.toml`).
_OF_EXTRA = {"transformers", "accelerate", "bitsandbytes", "huggingface_hub", "peft"}


def require_packages(recipe: Recipe) -> None:
    """Raises MissingPackageError, in one sentence, for packages of the program that are not installed."""
    missing = [name for name in recipe.packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"{recipe.config.name} needs packages that are not installed: {', '.join(missing)}",
            f"{install('llm')} brings them"
            if set(missing) <= _OF_EXTRA
            else f"pip install {' '.join(name.replace('_', '-') for name in missing)}",
        )


def task_of(config: ModelConfig) -> str:
    """Return the task of a configuration, by its class name; default a language model's."""
    sees = not {"text_config", "vision_config"}.isdisjoint(
        config.document
    )  # a decoder that also reads images
    for name in config.document.get("architectures") or ():
        for ending, task in (
            ("ForConditionalGeneration", "speech" if "num_mel_bins" in config.document else "seq2seq"),
            ("ForCTC", "speech"),
            ("ForSequenceClassification", "classification"),
            ("ForMaskedLM", "classification"),
            ("ForImageClassification", "vision"),
        ):
            if str(name).endswith(ending) and not (task == "seq2seq" and sees):
                return task
    return "causal-lm"


def parse_lora(text: str) -> Lora:
    """Parse "r=16,alpha=32,dropout=0.05,targets=q_proj+v_proj" (or targets=all-linear). Raises
    OptionError."""
    settings: dict[str, object] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in (*_ADAPTERS, "targets"):
            raise OptionError(
                f"--lora {text!r}: {part!r} says nothing",
                did_you_mean(name, (*_ADAPTERS, "targets"))
                + "write r=16,alpha=32,dropout=0.05,targets=q_proj+v_proj",
            )
        try:
            settings[name] = tuple(value.split("+")) if name == "targets" else _ADAPTERS[name](value)
        except ValueError:
            raise OptionError(f"--lora {text!r}: {name} is {value!r}", "give a number") from None
    lora = Lora(**settings)  # type: ignore[arg-type]
    if lora.r < 1 or not 0 <= lora.dropout < 1:
        raise OptionError(f"--lora {text!r} is no adapter", "r is at least 1, dropout from 0 to below 1")
    return lora


def optimizer_named(name: str) -> str:
    """Return `name` if it is a known optimizer. Raises OptionError."""
    if name not in OPTIMIZERS:
        raise OptionError(
            f"there is no optimizer {name!r} for a configuration",
            f"{did_you_mean(name, OPTIMIZERS)}one of {', '.join(_TORCH)}, adamw_8bit, paged_adamw_8bit, ...",
        )
    return name


def length_of(config: ModelConfig, length: int | None) -> int:
    """Return tokens of a sequence: as given, else the lesser of `_LENGTH` and the model's positions."""
    if length is not None:
        return length
    lengths = [
        config.number(name) for name in ("max_position_embeddings", "n_positions", "max_target_positions")
    ]
    return min([_LENGTH, *filter(None, lengths)])
