"""Document 000's second framework: the variable and UNETR in JAX, what XLA says they need and what a run really took.

    python -m benchmarks experiments xla OUT.json       (on a machine with JAX and a GPU)

1. Static: `jit(f).lower(shapes).compile().memory_analysis()`: bytes of arguments, outputs and temporaries of the compiled
   program, without running it. XLA knows the whole program, so this is a liveness estimate of its own, after fusion.
2. Run: `memory_stats()` of the device's BFC allocator (the one TensorFlow's GPU runtime has too), growing on demand.
3. UNETR is `models/unetr.py` operator for operator, in float32, weights as arguments; training is the gradient of the
   cross entropy and one step of SGD, old weights donated.

4. XLA's autotuning is off: it tries kernels on memory of its own while it compiles, which would be the peak.

TensorFlow itself is not run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

BATCH, SIZE, PATCH, WIDTH, HIDDEN, HEADS, FEATURE, CLASSES = 2, 96, 16, 768, 3072, 12, 16, 14
GRID = SIZE // PATCH
LAYOUT = ("NCDHW", "OIDHW", "NCDHW")
Params = dict[str, Any]


def parameters() -> Params:
    """Random weights, the parameters of `models/unetr.py` (its unused norm too)."""
    random = np.random.default_rng(0)
    made: Params = {}

    def make(name: str, *shape: int) -> None:
        made[name] = (random.standard_normal(shape) * 0.02).astype(np.float32)

    make("patch.w", PATCH**3, WIDTH)
    make("patch.b", WIDTH)
    make("positions", 1, GRID**3, WIDTH)
    for n in range(12):
        for name, shape in {
            "qkv.w": (WIDTH, 3 * WIDTH), "out.w": (WIDTH, WIDTH), "out.b": (WIDTH,), "up.w": (WIDTH, HIDDEN),
            "up.b": (HIDDEN,), "down.w": (HIDDEN, WIDTH), "down.b": (WIDTH,), "norm1.w": (WIDTH,), "norm1.b": (WIDTH,),
            "norm2.w": (WIDTH,), "norm2.b": (WIDTH,), "unused.w": (WIDTH,), "unused.b": (WIDTH,),
        }.items():  # fmt: skip
            make(f"{n}.{name}", *shape)
    make("norm.w", WIDTH)
    make("norm.b", WIDTH)

    def residual(name: str, first: int, then: int) -> None:
        make(f"{name}.1", then, first, 3, 3, 3)
        make(f"{name}.2", then, then, 3, 3, 3)
        if first != then:
            make(f"{name}.3", then, first, 1, 1, 1)

    def up(name: str, first: int, then: int) -> None:
        make(name, first, then, 2, 2, 2)

    residual("encoder1", 1, FEATURE)
    for number, channels, blocks in ((2, 2 * FEATURE, 2), (3, 4 * FEATURE, 1), (4, 8 * FEATURE, 0)):
        up(f"encoder{number}.init", WIDTH, channels)
        for block in range(blocks):
            up(f"encoder{number}.{block}.up", channels, channels)
            residual(f"encoder{number}.{block}", channels, channels)
    for number, first, then in ((5, WIDTH, 128), (4, 128, 64), (3, 64, 32), (2, 32, 16)):
        up(f"decoder{number}.up", first, then)
        residual(f"decoder{number}", 2 * then, then)
    make("classes.w", CLASSES, FEATURE, 1, 1, 1)
    make("classes.b", CLASSES)
    return made


def _norm(x: Any, axes: tuple[int, ...]) -> Any:
    mean = x.mean(axes, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(axes, keepdims=True) + 1e-5)


def _conv(x: Any, w: Any) -> Any:
    pad = w.shape[-1] // 2
    return lax.conv_general_dilated(x, w, (1, 1, 1), [(pad, pad)] * 3, dimension_numbers=LAYOUT)


def _up(x: Any, w: Any) -> Any:
    return lax.conv_transpose(x, jnp.swapaxes(w, 0, 1), (2, 2, 2), "VALID", dimension_numbers=LAYOUT)


def _residual(p: Params, name: str, x: Any) -> Any:
    out = jax.nn.leaky_relu(_norm(_conv(x, p[f"{name}.1"]), (2, 3, 4)), 0.01)
    out = _norm(_conv(out, p[f"{name}.2"]), (2, 3, 4))
    if f"{name}.3" in p:
        x = _norm(_conv(x, p[f"{name}.3"]), (2, 3, 4))
    return jax.nn.leaky_relu(out + x, 0.01)


def _block(p: Params, n: int, x: Any) -> Any:
    def layer_norm(y: Any, name: str) -> Any:
        return _norm(y, (2,)) * p[f"{n}.{name}.w"] + p[f"{n}.{name}.b"]

    batch, tokens, _ = x.shape
    qkv = (layer_norm(x, "norm1") @ p[f"{n}.qkv.w"]).reshape(batch, tokens, 3, HEADS, WIDTH // HEADS)
    q, k, v = qkv.transpose(2, 0, 3, 1, 4)
    weights = jax.nn.softmax(jnp.einsum("blxd,blyd->blxy", q, k) * (WIDTH // HEADS) ** -0.5, -1)
    attended = jnp.einsum("bhxy,bhyd->bhxd", weights, v).transpose(0, 2, 1, 3).reshape(batch, tokens, WIDTH)
    x = x + attended @ p[f"{n}.out.w"] + p[f"{n}.out.b"]
    hidden = jax.nn.gelu(layer_norm(x, "norm2") @ p[f"{n}.up.w"] + p[f"{n}.up.b"], approximate=False)
    return x + hidden @ p[f"{n}.down.w"] + p[f"{n}.down.b"]


def unetr(p: Params, image: Any) -> Any:
    """[batch, 1, 96, 96, 96] to [batch, 14, 96, 96, 96]."""
    batch = image.shape[0]
    x = image.reshape(batch, 1, GRID, PATCH, GRID, PATCH, GRID, PATCH)
    x = x.transpose(0, 2, 4, 6, 3, 5, 7, 1).reshape(batch, GRID**3, PATCH**3)
    x = x @ p["patch.w"] + p["patch.b"] + p["positions"]
    states = []
    for n in range(12):
        x = _block(p, n, x)
        states.append(x)
    x = _norm(x, (2,)) * p["norm.w"] + p["norm.b"]

    def volume(tokens: Any) -> Any:
        return tokens.reshape(batch, GRID, GRID, GRID, WIDTH).transpose(0, 4, 1, 2, 3)

    skips = {1: _residual(p, "encoder1", image)}
    for number, state, blocks in ((2, 3, 2), (3, 6, 1), (4, 9, 0)):
        y = _up(volume(states[state]), p[f"encoder{number}.init"])
        for block in range(blocks):
            y = _residual(p, f"encoder{number}.{block}", _up(y, p[f"encoder{number}.{block}.up"]))
        skips[number] = y
    y = volume(x)
    for number in (5, 4, 3, 2):
        y = _up(y, p[f"decoder{number}.up"])
        y = _residual(p, f"decoder{number}", jnp.concatenate((y, skips[number - 1]), 1))
    return _conv(y, p["classes.w"]) + p["classes.b"].reshape(1, -1, 1, 1, 1)


def train(p: Params, image: Any, labels: Any) -> tuple[Params, Any]:
    """One step of SGD."""

    def loss(q: Params) -> Any:
        logits = jax.nn.log_softmax(unetr(q, image), 1)
        return -jnp.take_along_axis(logits, labels[:, None], 1).mean()

    value, gradient = jax.value_and_grad(loss)(p)
    return jax.tree.map(lambda w, g: w - 1e-3 * g, p, gradient), value


def static(function: Any, *arguments: Any, donate: tuple[int, ...] = ()) -> tuple[Any, dict[str, int]]:
    """The compiled program and what XLA says it needs (rule 1)."""
    compiled = jax.jit(function, donate_argnums=donate).lower(*arguments).compile()
    found = compiled.memory_analysis()
    names = ("argument", "output", "temp", "alias")
    sizes = {name: int(getattr(found, f"{name}_size_in_bytes")) for name in names}
    sizes["total"] = sizes["argument"] + sizes["output"] + sizes["temp"] - sizes["alias"]
    return compiled, sizes


def stats() -> dict[str, int]:
    """Bytes in use and at the peak since the process started (rule 2)."""
    found = jax.devices()[0].memory_stats() or {}
    return {name: int(found.get(name, 0)) for name in ("bytes_in_use", "peak_bytes_in_use", "bytes_reserved")}


@click.command("xla")
@click.argument("out", type=Path)
def main(out: Path) -> None:
    """Measure one after the other. Peaks count from the start of the process, so what needs more comes later; of the
    variable, last, only what it adds is read."""
    result: dict[str, Any] = {"jax": jax.__version__, "device": str(jax.devices()[0].device_kind)}
    params = parameters()
    result["parameter_count"] = int(sum(w.size for w in params.values()))
    on_device = jax.device_put(params)
    image = jnp.zeros((BATCH, 1, SIZE, SIZE, SIZE), jnp.float32)
    labels = jnp.zeros((BATCH, SIZE, SIZE, SIZE), jnp.int32)
    compiled, sizes = static(unetr, on_device, image)
    result["unetr_infer"] = {"static": sizes}
    compiled_train, sizes = static(train, on_device, image, labels, donate=(0,))
    result["unetr_train"] = {"static": sizes}
    for name, run in (
        ("unetr_infer", lambda: compiled(on_device, image)),
        ("unetr_train", lambda: compiled_train(on_device, image, labels)),
    ):
        before = stats()
        jax.block_until_ready(run())
        result[name] |= {"before": before, "run": stats()}
    shape = jax.ShapeDtypeStruct((2**28,), jnp.float32)
    _, sizes = static(lambda x: x[:1], shape)
    before = stats()
    variable = jax.device_put(np.zeros(2**28, np.float32))
    variable.block_until_ready()
    result["variable"] = {"static": sizes, "before": before, "run": stats()}
    variable.delete()
    out.write_text(json.dumps(result, indent=1) + "\n")
