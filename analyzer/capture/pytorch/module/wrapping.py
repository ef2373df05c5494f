"""A model spread over the ranks of a job, as PyTorch's documentation does it: what `--parallel` stands for.

1. The process is rank `rank` of a job: `cuda.set_device`, `init_process_group("cpu:gloo,cuda:nccl")`.
2. **ddp**: the model moves to the GPU and goes into `DistributedDataParallel`. Micro-batches but the last of
   a step run under `no_sync` (`no_sync=false`: every one reduces its gradients). `zero`:
   `ZeroRedundancyOptimizer` keeps the optimizer's state of a share of the parameters on each rank.
3. **fsdp2**: `fully_shard` is called on every block the model repeats (`blocks.py`, or those that `wrap=`
   matches), in order, then on the model itself. It moves a block to the GPU and leaves this rank's shard
   there. `mixed`: parameters are gathered and used in that type, gradients are reduced in float32
   (`reduce_dtype` says another). Micro-batches all reduce their gradients, unless `no_sync=true` keeps them
   whole until the last.
4. **tp**: `parallelize_module` splits pairs of linear layers, of which the first ones are followed by the
   second, by their names (`PAIRS`): the first by columns, the second by rows, so that one all-reduce ends
   each pair. Where a layer belongs to attention, whole heads go to a rank, and the numbers of heads its
   module keeps are divided. Embeddings, norms and the output layer are whole on every rank. Split and whole
   parameters are in parameter groups of their own: a foreach kernel takes one kind.

The same functions run a model for real, one process a GPU (`benchmarks/subjects/ranks/programs/spread.py`).
Source: PyTorch's tutorials on DDP, FSDP2 (`intermediate/FSDP_tutorial`) and tensor parallelism
(`intermediate/TP_tutorial`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from analyzer.capture.pytorch.module.blocks import matching, patterns, repeated
from analyzer.capture.pytorch.module.step import OneGpu
from analyzer.errors import CaptureError, OptionError
from analyzer.parallelism import Parallelism
from analyzer.ranks import Rank

# Linear layers split by columns, and the one behind them that is split by rows; paths below one module.
PAIRS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("q_proj", "k_proj", "v_proj"), "o_proj"),
    (("q_proj", "k_proj", "v_proj"), "out_proj"),
    (("wq", "wk", "wv"), "wo"),
    (("to_q", "to_k", "to_v"), "to_out.0"),
    (("self.query", "self.key", "self.value"), "output.dense"),
    (("attention.query", "attention.key", "attention.value"), "output.dense"),
    (("gate_proj", "up_proj"), "down_proj"),
    (("up_proj",), "down_proj"),
    (("w1", "w3"), "w2"),
    (("wi_0", "wi_1"), "wo"),
    (("fc1",), "fc2"),
    (("linear1",), "linear2"),
    (("up",), "down"),
    (("intermediate.dense",), "output.dense"),
    (("dense_h_to_4h",), "dense_4h_to_h"),
)
_ATTENTION = frozenset({"q_proj", "wq", "to_q", "self.query", "attention.query"})
# Modules' attributes with the number of heads, of key and value heads, and the width of all of them.
_HEAD_COUNTS = "num_heads n_heads n_head num_attention_heads num_key_value_heads n_kv_heads num_kv_heads"
_HEADS = (*_HEAD_COUNTS.split(), "heads", "all_head_size", "inner_dim")
_HEAD_SIZES = ("head_dim", "head_size", "attention_head_size", "d_head")
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@contextlib.contextmanager
def joined(rank: Rank) -> Iterator[None]:
    """While open, this process is that rank of its job."""
    torch.cuda.set_device(rank.local_rank)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl",
        rank=rank.rank,
        world_size=rank.world_size,
        device_id=torch.device("cuda", rank.local_rank),
    )
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def placing(parallel: Parallelism, note: Callable[[str], None]) -> Callable[[nn.Module], OneGpu]:
    """Return a function that spreads a model over the ranks as `parallel` says; `note` gets the choices.

    Raises OptionError where the model cannot be spread so.
    """
    kinds: dict[str, Callable[..., OneGpu]] = {"ddp": Ddp, "fsdp2": Fsdp2, "tp": TensorParallel}
    return lambda model: kinds[parallel.kind](model, parallel, note)


class Ddp(OneGpu):
    """Replicates the model on every rank, with buckets of gradients."""

    def __init__(self, model: nn.Module, parallel: Parallelism, note: Callable[[str], None]) -> None:
        del note
        super().__init__(model)
        settings = dict(parallel.settings)
        self._no_sync, self._zero = settings.pop("no_sync", True), settings.pop("zero", False)
        settings.pop("rank", None)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise OptionError(
                f"{type(model).__name__} has no parameter that is trained, which DDP is for",
                "leave --parallel out: every rank runs the model as it is",
            )
        self.model = nn.parallel.DistributedDataParallel(
            model, device_ids=[parallel.rank.local_rank], **settings
        )

    def optimizer(self, make: Callable[..., torch.optim.Optimizer]) -> torch.optim.Optimizer:
        if not self._zero:
            return super().optimizer(make)
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(
            self.model.parameters(),
            optimizer_class=lambda parameters, **_: make(parameters),  # type: ignore[arg-type]
        )

    def micro_batch(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        assert isinstance(self.model, nn.parallel.DistributedDataParallel)
        return contextlib.nullcontext() if last or not self._no_sync else self.model.no_sync()


class Fsdp2(OneGpu):
    """Shards every parameter over the ranks and gathers it while its block runs."""

    def __init__(self, model: nn.Module, parallel: Parallelism, note: Callable[[str], None]) -> None:
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

        settings = parallel.settings
        self.model, self._no_sync = model, settings.get("no_sync", False)
        wrap = settings.get("wrap")
        blocks = repeated(model) if wrap is None else matching(model, wrap, "wrap")
        shown = ", ".join(patterns(blocks))
        note(
            f"FSDP2: fully_shard on {len(blocks)} block{'s' * (len(blocks) != 1)} ({shown}) and the model; "
            "--parallel fsdp2:...,wrap=PATTERN says others"
            if blocks
            else (
                f"FSDP2: {type(model).__name__} repeats no block, so fully_shard is called on the whole"
                " model, which is gathered at once; --parallel fsdp2:...,wrap=PATTERN says otherwise"
            )
        )
        options: dict[str, Any] = {}
        if "mixed" in settings or "reduce_dtype" in settings:
            options["mp_policy"] = MixedPrecisionPolicy(
                param_dtype=_DTYPES[settings["mixed"]] if "mixed" in settings else None,
                reduce_dtype=_DTYPES[settings.get("reduce_dtype", "float32")],
            )
        if "reshard_after_forward" in settings:
            options["reshard_after_forward"] = settings["reshard_after_forward"]
        if settings.get("offload"):
            options["offload_policy"] = CPUOffloadPolicy()
        for block in blocks.values():
            fully_shard(block, **options)
        fully_shard(model, **options)

    def micro_batch(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        if self._no_sync:
            self.model.set_requires_gradient_sync(last)  # type: ignore[operator]
        return contextlib.nullcontext()


class TensorParallel(OneGpu):
    """Splits the columns or rows of linear layers over the ranks."""

    def __init__(self, model: nn.Module, parallel: Parallelism, note: Callable[[str], None]) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        super().__init__(model)
        size, wrap = parallel.size, parallel.settings.get("wrap")
        inside = None if wrap is None else tuple(matching(model, wrap, "wrap"))
        pairs = [
            entry
            for entry in linear_pairs(model)
            if inside is None or any(f"{entry[0]}.".startswith(f"{path}.") for path in inside)
        ]
        if not pairs:
            raise OptionError(
                f"{type(model).__name__} has no linear layers of the names tensor parallelism is known for",
                "such as q_proj, k_proj, v_proj and o_proj; write a plan for parallelize_module in a script,"
                f" and follow it: analyze run --nproc-per-node {size} SCRIPT",
            )
        mesh = init_device_mesh("cuda", (size,))
        for path, columns, row in pairs:
            part = model.get_submodule(path)
            if columns[0] in _ATTENTION:
                _divide_heads(part, path, columns, size)
            _check(part, path, (*columns, row), size)
            plan = {**{name: ColwiseParallel() for name in columns}, row: RowwiseParallel()}
            parallelize_module(part, mesh, plan)
        layers = dict.fromkeys(
            f"{patterns([path])[0]}.{name}".lstrip(".")
            for path, names, row in pairs
            for name in (*names, row)
        )
        note(f"tensor parallelism: {', '.join(layers)} are split, everything else is whole on every rank")

    def optimizer(self, make: Callable[..., torch.optim.Optimizer]) -> torch.optim.Optimizer:
        from torch.distributed.tensor import DTensor

        parameters = list(self.model.parameters())
        split = [parameter for parameter in parameters if isinstance(parameter, DTensor)]
        unsharded = [parameter for parameter in parameters if not isinstance(parameter, DTensor)]
        return make([{"params": group} for group in (split, unsharded) if group])


def linear_pairs(model: nn.Module) -> list[tuple[str, tuple[str, ...], str]]:
    """Return (module's path, its column-split layers, its row-split layer); each layer once."""
    pairs, split = list[tuple[str, tuple[str, ...], str]](), set[int]()
    for path, part in model.named_modules():
        below: Mapping[str, nn.Module] = dict(part.named_modules())
        for columns, row in (*PAIRS, *_in_sequence(part)):
            layers = [below.get(name) for name in (*columns, row)]
            if all(type(layer) is nn.Linear and id(layer) not in split for layer in layers):
                split.update(map(id, layers))
                pairs.append((path, columns, row))
    return pairs


def _in_sequence(part: nn.Module) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield pairs of linear layers in an `nn.Sequential` with only elementwise modules between."""
    if not isinstance(part, nn.Sequential):
        return
    layers = [name for name, child in part.named_children() if any(True for _ in child.parameters())]
    elementwise = all(
        isinstance(child, nn.Linear | nn.Dropout | nn.Identity)
        or type(child).__module__ == "torch.nn.modules.activation"
        for child in part.children()
    )
    if len(layers) == 2 and elementwise:
        yield (layers[0],), layers[1]


def _check(part: nn.Module, path: str, names: Sequence[str], size: int) -> None:
    for name in names:
        layer = part.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        width = layer.in_features if name == names[-1] else layer.out_features
        if width % size:
            raise OptionError(
                f"the {width:,} {'rows' if name == names[-1] else 'columns'} of {path}.{name} cannot be"
                f" divided over {size} GPUs",
                "take a number of GPUs that divides them",
            )


def _divide_heads(part: nn.Module, path: str, columns: Sequence[str], size: int) -> None:
    """Set the head counts to this rank's share. Raises OptionError if heads do not divide."""
    owner = part.get_submodule(columns[0].rpartition(".")[0])
    head = next((value for name in _HEAD_SIZES if isinstance(value := getattr(owner, name, None), int)), None)
    if head is not None:
        for name in columns:
            layer = part.get_submodule(name)
            assert isinstance(layer, nn.Linear)
            if layer.out_features % (head * size):
                raise OptionError(
                    f"the {layer.out_features // head} heads of {path}.{name} cannot be divided over {size}"
                    " GPUs",
                    "take a number of GPUs that divides them",
                )
    for name in _HEADS:
        count = getattr(owner, name, None)
        if isinstance(count, int) and not isinstance(count, bool):
            if count % size:
                raise OptionError(
                    f"{name} of {path} is {count}, which cannot be divided over {size} GPUs",
                    "take a number of GPUs that divides it",
                )
            setattr(owner, name, count // size)


def cannot_run(parallel: Parallelism, error: CaptureError) -> CaptureError:
    """Return the error for a model that does not run once it is spread."""
    return CaptureError(
        f"spread by --parallel {parallel.text}: {error.message}",
        "leave --parallel out to see whether the model runs by itself; a job written as a script is followed"
        f" by analyze run --nproc-per-node {parallel.size} SCRIPT",
    )
