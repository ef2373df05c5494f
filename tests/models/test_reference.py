"""The models in `models/` against the libraries they stand for: names, shapes, operators in order, bytes alive.

Two models that call the same operators on the same shapes in the same order, and hold the same bytes after each,
need the same memory.
"""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.models.model_files import load
from tests.models.torchvision_cpu import torchvision_schemas  # noqa: F401 (a fixture)

VIEWS = ("aten.view.default", "aten.alias.default")
NORMALISATIONS = ("aten.native_layer_norm.default", "aten.pow.Tensor_Scalar")


class Watch(TorchDispatchMode):
    """Records (operator, result shapes) of every call, and the most bytes alive of what the calls made.

    Without `bookkeeping`: only calls and bytes of floating-point results that are no plain views, and calls only from
    the first normalisation on, which leaves out the arithmetic on positions and masks that releases of a library write
    differently.
    """

    def __init__(self, model: nn.Module, bookkeeping: bool) -> None:
        super().__init__()
        self.held = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
        self.bookkeeping = bookkeeping
        self.calls: list[tuple[str, tuple[tuple[int, ...], ...]]] = []
        self.alive: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        result = function(*arguments, **(keywords or {}))
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if not self.bookkeeping:
            tensors = [tensor for tensor in tensors if tensor.is_floating_point()]
        started = self.calls or str(function) in NORMALISATIONS
        if self.bookkeeping or (started and tensors and str(function) not in VIEWS):
            self.calls.append((str(function), tuple(tuple(tensor.shape) for tensor in tensors)))
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self.alive and key not in self.held:
                self.alive[key] = storage.nbytes()
                weakref.finalize(storage, self.alive.pop, key)
        self.peak = max(self.peak, sum(self.alive.values()))
        return result


def run(model: nn.Module, inputs: tuple[Tensor, ...], train: bool, bookkeeping: bool) -> Watch:
    """A forward pass, and in training the backward pass of the output's sum."""
    model.train(train).zero_grad()
    watch = Watch(model, bookkeeping)
    with watch, torch.set_grad_enabled(train):
        output = model(*inputs)
        output = getattr(output, "logits", output)
        if train:
            output.sum().backward()
    return watch


def state(model: nn.Module) -> list[tuple[str, torch.Size, torch.dtype]]:
    """Names, shapes and dtypes of everything a checkpoint holds, in order."""
    return [(name, tensor.shape, tensor.dtype) for name, tensor in model.state_dict().items()]


def assert_same(
    ours: nn.Module, theirs: nn.Module, inputs: tuple[Tensor, ...], bookkeeping: bool = True
) -> None:
    assert state(ours) == state(theirs)
    for train in (False, True):
        a, b = run(ours, inputs, train, bookkeeping), run(theirs, inputs, train, bookkeeping)
        assert len(a.calls) > 20
        assert a.calls == b.calls
        assert a.peak == b.peak


@pytest.fixture
def torchvision() -> ModuleType:
    return pytest.importorskip("torchvision", exc_type=(ImportError, RuntimeError))


@pytest.mark.parametrize("name", ["resnet50", "vit_b_16"])
def test_torchvision(torchvision: ModuleType, name: str) -> None:
    with torch.device("meta"):
        theirs = getattr(torchvision.models, name)()
        assert_same(load(name).make_model(), theirs, (torch.randn(2, 3, 224, 224),))


def test_monai() -> None:
    nets = pytest.importorskip("monai.networks.nets")
    with torch.device("meta"):
        theirs = nets.UNETR(
            in_channels=1,
            out_channels=14,
            img_size=(96, 96, 96),
            feature_size=16,
            hidden_size=768,
            mlp_dim=3072,
            num_heads=12,
            proj_type="perceptron",
            norm_name="instance",
            res_block=True,
            dropout_rate=0.0,
        )
        assert_same(load("unetr").make_model(), theirs, (torch.randn(2, 1, 96, 96, 96),))


def test_transformers_gpt2() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False, n_layer=2))
    ours = load("gpt2").GPT2(depth=2)
    assert_same(ours, theirs, (torch.zeros(2, 16, dtype=torch.long),), bookkeeping=False)


@pytest.mark.parametrize("key_value_head_count", [4, 2])
def test_transformers_llama(key_value_head_count: int) -> None:
    transformers = pytest.importorskip("transformers")
    llama = load("llama")
    config = llama.Config(
        vocabulary_size=1000,
        width=256,
        hidden=704,
        depth=2,
        head_count=4,
        key_value_head_count=key_value_head_count,
    )
    with llama._default_dtype(torch.bfloat16):
        theirs = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                use_cache=False,
                vocab_size=1000,
                hidden_size=256,
                intermediate_size=704,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=key_value_head_count,
            )
        )
    ours = llama.make_model(config)
    assert_same(ours, theirs, (torch.zeros(2, 16, dtype=torch.long),), bookkeeping=False)
