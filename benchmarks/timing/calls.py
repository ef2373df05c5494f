"""From a specification of `shapes.py` to a call that runs it. Torch alone is needed: this runs on a GPU's machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

Call = Callable[[], Any]
Spec = dict[str, Any]
aten = torch.ops.aten
TYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "tf32": torch.float32,
}


class Pool:
    """Tensors of random numbers, pieces of one buffer a type: making them costs nothing."""

    def __init__(self, device: str, elements: int) -> None:
        self.device, self.elements = device, elements
        self._buffers: dict[torch.dtype, torch.Tensor] = {}
        self._next: dict[torch.dtype, int] = {}

    def fresh(self) -> None:
        """From the beginning again, for the next call."""
        self._next.clear()

    def of(self, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        """A contiguous tensor; one of its own where the buffer has no more."""
        count = math.prod(shape)
        if dtype not in self._buffers:
            self._buffers[dtype] = torch.randn(self.elements, device=self.device).to(dtype)
        start = self._next.get(dtype, 0)
        if start + count > self.elements:
            return torch.randn(shape, device=self.device, dtype=dtype)
        self._next[dtype] = start + -(-count // 256) * 256
        return self._buffers[dtype][start : start + count].view(shape)


def build(spec: Spec, pool: Pool) -> Call:
    """The call of a specification, its tensors made."""
    pool.fresh()
    torch.backends.cuda.matmul.allow_tf32 = spec.get("dtype") == "tf32"
    return _BUILDERS[spec["kind"]](spec, pool, TYPES[spec["dtype"]])


def _product(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    b, m, n, k, layout = spec["b"], spec["m"], spec["n"], spec["k"], spec["layout"]
    batch = (b,) if b > 1 else ()
    left = pool.of(dtype, *batch, k, m).mT if layout[0] == "t" else pool.of(dtype, *batch, m, k)
    right = pool.of(dtype, *batch, n, k).mT if layout[1] == "t" else pool.of(dtype, *batch, k, n)
    if spec["kind"] == "addmm":
        bias = pool.of(dtype, n)
        return lambda: torch.addmm(bias, left, right)
    return (lambda: torch.bmm(left, right)) if b > 1 else (lambda: torch.mm(left, right))


def _grouped(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    b, m, n, k = spec["b"], spec["m"], spec["n"], spec["k"]
    left, right = pool.of(dtype, m, k), pool.of(dtype, b, n, k).mT
    ends = torch.arange(1, b + 1, device=pool.device, dtype=torch.int32) * (m // b)
    return lambda: torch._grouped_mm(left, right, offs=ends)


def _convolution(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    d, p, r, groups = spec["d"], spec["p"], spec["r"], spec["groups"]
    memory = torch.channels_last if spec["layout"] == "nhwc" else torch.contiguous_format
    x = pool.of(dtype, spec["n"], spec["c"], *[p] * d).to(memory_format=memory)
    sides = (spec["c"], spec["k"]) if spec["transposed"] else (spec["k"], spec["c"])
    weight = pool.of(dtype, sides[0], sides[1] // groups, *[r] * d).to(memory_format=memory)
    patches = spec["stride"] == r and not spec["transposed"]
    padding = [0] * d if patches else [spec["dilation"] * (r - 1) // 2] * d
    rest: tuple[Any, ...] = (
        [spec["stride"]] * d,
        padding,
        [spec["dilation"]] * d,
        bool(spec["transposed"]),
        [0] * d,
        groups,
    )
    if spec["part"] == "forward":
        return lambda: aten.convolution(x, weight, None, *rest)
    gradient = torch.randn_like(aten.convolution(x, weight, None, *rest))
    mask = [spec["part"] == "input", spec["part"] == "weight", False]
    return lambda: aten.convolution_backward(gradient, x, weight, None, *rest, mask)


def _attention(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    b, h, w, causal = spec["b"], spec["h"], spec["w"], bool(spec["causal"])
    q = pool.of(dtype, b, spec["q"], h, w).transpose(1, 2)
    k, v = (pool.of(dtype, b, spec["l"], h, w).transpose(1, 2) for _ in range(2))
    kernel, backward = spec["kernel"], spec["part"] == "backward"
    if kernel == "flash":
        found = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
        if not backward:
            return lambda: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
        out, lse, cq, ck, mq, mk, seed, offset, _ = found
        grad = torch.randn_like(out)
        return lambda: aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, lse, cq, ck, mq, mk, 0.0, causal, seed, offset
        )
    if kernel == "cudnn":
        found = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal)
        if not backward:
            return lambda: aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal)
        out, lse, cq, ck, mq, mk, seed, offset, _ = found
        grad = torch.randn_like(out)
        return lambda: aten._scaled_dot_product_cudnn_attention_backward(
            grad, q, k, v, out, lse, seed, offset, None, cq, ck, mq, mk, 0.0, causal
        )
    out, lse, seed, offset = aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)
    if not backward:
        return lambda: aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)
    grad = torch.randn_like(out)
    return lambda: aten._scaled_dot_product_efficient_attention_backward(
        grad, q, k, v, None, out, lse, seed, offset, 0.0, [True, True, True, False], causal
    )


def _moved(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    name = spec["name"]
    count = spec["nbytes"] // dtype.itemsize
    x, y = pool.of(dtype, count), pool.of(dtype, count)
    mask = x > 0 if name in ("where", "masked_fill", "native_dropout_backward") else x
    hosted = torch.zeros(count, dtype=dtype) if name == "from_host" else x
    table: dict[str, Call] = {
        "clone": x.clone, "add": lambda: x + y, "add_": lambda: x.add_(y), "mul": lambda: x * y, "mul_": lambda: x.mul_(y),
        "mul.Scalar": lambda: x * 1.5, "relu": lambda: torch.relu(x), "relu_": lambda: torch.relu_(x),
        "threshold_backward": lambda: aten.threshold_backward(x, y, 0), "gelu": lambda: aten.gelu(x), "gelu_backward": lambda: aten.gelu_backward(x, y),
        "silu": lambda: aten.silu(x), "silu_backward": lambda: aten.silu_backward(x, y), "sigmoid": lambda: torch.sigmoid(x),
        "tanh": lambda: torch.tanh(x), "exp": lambda: torch.exp(x), "pow2": lambda: x.pow(2), "pow3": lambda: x.pow(3), "rsqrt": lambda: torch.rsqrt(x),
        "div": lambda: x / y, "where": lambda: torch.where(mask, x, y), "masked_fill": lambda: x.masked_fill(mask, 0.0),
        "native_dropout": lambda: aten.native_dropout(x, 0.1, True), "native_dropout_backward": lambda: aten.native_dropout_backward(x, mask, 1.1),
        "bernoulli_": lambda: x.bernoulli_(0.5), "fill_": lambda: x.fill_(1.0), "zero_": x.zero_, "addcmul": lambda: torch.addcmul(x, x, y),
        "lerp_": lambda: x.lerp_(y, 0.1), "hardswish": lambda: aten.hardswish(x), "hardswish_backward": lambda: aten.hardswish_backward(x, y),
        "leaky_relu": lambda: aten.leaky_relu(x), "sub": lambda: x - y, "neg": lambda: -x, "eq": lambda: x.eq(0), "normal_": x.normal_, "sin": lambda: torch.sin(x),
        "from_host": lambda: hosted.to(pool.device), "to_bfloat16": lambda: x.to(torch.bfloat16, copy=True), "to_float32": lambda: x.to(torch.float32, copy=True), "to_float16": lambda: x.to(torch.float16, copy=True),
    }  # fmt: skip
    return table[name] if name in table else _rearranged(spec, pool, dtype, count)


def _rearranged(spec: Spec, pool: Pool, dtype: torch.dtype, count: int) -> Call:
    """Copies between layouts, and what is broadcast."""
    name, width = spec["name"], 64 if count < 2**14 else 512
    rows = max(count // width, 1)
    x, y = pool.of(dtype, rows, width), pool.of(dtype, rows, width)
    side = 14 if count >= 196 * 64 else 4
    channels = 64 if count >= 196 * 64 else 8
    images = max(count // (side * side * channels), 1)
    planes = pool.of(dtype, images, channels, side, side)
    heads = pool.of(dtype, max(rows // 32, 1), min(rows, 32), width // 32, 32)
    row, channel, column = pool.of(dtype, width), pool.of(dtype, channels, 1, 1), pool.of(dtype, rows, 1)
    table: dict[str, Call] = {
        "bias_add": lambda: x + row, "channel_mul": lambda: planes * channel, "row_mul": lambda: x * column,
        "head_permute": lambda: heads.transpose(1, 2).contiguous(), "nchw_nhwc": lambda: planes.permute(0, 2, 3, 1).contiguous(),
        "transpose": lambda: x.t().contiguous(), "cat2": lambda: torch.cat((x, y)), "cat_last": lambda: torch.cat((x, y), 1),
        "slice_copy": x[:, : width // 2].contiguous, "flip": lambda: x.flip(1), "roll": lambda: x.roll(3, 0),
        "pad": lambda: torch.nn.functional.pad(planes, (1, 1, 1, 1)), "repeat_kv": lambda: x[:, None].expand(rows, 2, width).reshape(-1, width),
        "interleave": lambda: torch.stack((x, y), -1), "stride2": x[:, ::2].contiguous,
    }  # fmt: skip
    return table[name]


def _reduced(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    name, width = spec["name"], spec["width"]
    count = spec["nbytes"] // dtype.itemsize
    rows = max(count // width, 1)
    x = pool.of(dtype, rows, width)
    channels = min(64, rows)
    planes = x[: rows // channels * channels].view(rows // channels, channels, width)
    table: dict[str, Call] = {
        "sum_last": lambda: x.sum(-1), "sum_first": lambda: x.sum(0), "sum_all": x.sum, "sum_plane": lambda: planes.sum((0, 2)),
        "sum_bias": lambda: planes.sum((0, 1), keepdim=True), "mean_last": lambda: x.mean(-1), "mean_plane": lambda: planes.mean(-1),
        "amax_last": lambda: x.amax(-1), "argmax_last": lambda: x.argmax(-1), "norm_all": lambda: torch.linalg.vector_norm(x),
        "var_last": lambda: x.var(-1), "cumsum_last": lambda: x.cumsum(-1),
    }  # fmt: skip
    return table[name]


def _foreach(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    name, shape = spec["name"], (spec["tensors"], spec["each"])
    a, b, c = (list(pool.of(dtype, *shape).unbind(0)) for _ in range(3))
    if name.startswith("_fused"):
        steps = [torch.ones((), device=pool.device) for _ in a]
        d = list(pool.of(dtype, *shape).unbind(0))
        common: dict[str, Any] = {"lr": 1e-9, "weight_decay": 0.0, "maximize": False}
        if name == "_fused_adamw_":
            return lambda: torch._fused_adamw_(
                a, b, c, d, [], steps, beta1=0.9, beta2=0.99, eps=1e-8, amsgrad=False, **common
            )
        return lambda: torch._fused_sgd_(
            a, b, c, momentum=0.9, dampening=0.0, nesterov=False, is_first_step=False, **common
        )
    table: dict[str, Call] = {
        "_foreach_add_": lambda: torch._foreach_add_(a, b, alpha=1e-9), "_foreach_mul_": lambda: torch._foreach_mul_(a, 1.0001),
        "_foreach_lerp_": lambda: torch._foreach_lerp_(a, b, 0.1), "_foreach_addcmul_": lambda: torch._foreach_addcmul_(a, b, c, 1e-9),
        "_foreach_addcdiv_": lambda: torch._foreach_addcdiv_(a, b, c, 1e-9), "_foreach_sqrt": lambda: torch._foreach_sqrt(a),
        "_foreach_div_": lambda: torch._foreach_div_(a, 1.0001), "_foreach_norm": lambda: torch._foreach_norm(a, 2),
        "_foreach_add": lambda: torch._foreach_add(a, b), "_foreach_zero_": lambda: torch._foreach_zero_(a),
        "_foreach_maximum_": lambda: torch._foreach_maximum_(a, b), "_foreach_copy_": lambda: torch._foreach_copy_(a, b),
    }  # fmt: skip
    return table[name]


def _rows(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    name, rows, width = spec["name"], spec["rows"], spec["width"]
    x, y = pool.of(dtype, rows, width), pool.of(dtype, rows, width)
    if name.startswith("nll"):
        labels = torch.randint(width, (rows,), device=pool.device)
        loss, weight = aten.nll_loss_forward(x, labels, None, 1, -100)
        return (
            (lambda: aten.nll_loss_forward(x, labels, None, 1, -100))
            if name.endswith("forward")
            else (lambda: aten.nll_loss_backward(loss, x, labels, None, 1, -100, weight))
        )
    w, shift = pool.of(dtype, width), pool.of(dtype, width)
    if name.startswith("native_layer_norm"):
        _, mean, rstd = aten.native_layer_norm(x, [width], w, shift, 1e-5)
        return (
            (lambda: aten.native_layer_norm(x, [width], w, shift, 1e-5))
            if name == "native_layer_norm"
            else (
                lambda: aten.native_layer_norm_backward(
                    y, x, [width], mean, rstd, w, shift, [True, True, True]
                )
            )
        )
    if name.startswith("_fused_rms"):
        _, rstd = aten._fused_rms_norm(x, [width], w, 1e-6)
        return (
            (lambda: aten._fused_rms_norm(x, [width], w, 1e-6))
            if name == "_fused_rms_norm"
            else (lambda: aten._fused_rms_norm_backward(y, x, [width], rstd, w, [True, True]))
        )
    table: dict[str, Call] = {
        "_softmax": lambda: aten._softmax(x, -1, False), "_log_softmax": lambda: aten._log_softmax(x, -1, False),
        "_softmax_backward_data": lambda: aten._softmax_backward_data(x, y, -1, dtype),
        "_log_softmax_backward_data": lambda: aten._log_softmax_backward_data(x, y, -1, dtype),
    }  # fmt: skip
    return table[name]


def _planes(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    name, n, c, p = spec["name"], spec["n"], spec["c"], spec["p"]
    memory = torch.channels_last if spec["layout"] == "nhwc" else torch.contiguous_format
    x = pool.of(dtype, n, c, p, p).to(memory_format=memory)
    F = torch.nn.functional
    if "norm" in name:
        kept = torch.float32 if name.startswith("mixed") else dtype
        w, shift, mean, var = (pool.of(kept, c).abs() for _ in range(4))
        y = torch.randn_like(x)
        if name.endswith("batch_norm_eval"):
            return lambda: aten.native_batch_norm(x, w, shift, mean, var, False, 0.1, 1e-5)
        if name.startswith("mixed"):
            _, saved, inverse = aten.native_batch_norm(x, w, shift, mean, var, True, 0.1, 1e-5)
            return (
                (lambda: aten.native_batch_norm(x, w, shift, mean, var, True, 0.1, 1e-5))
                if name == "mixed_batch_norm"
                else (
                    lambda: aten.native_batch_norm_backward(
                        y, x, w, mean, var, saved, inverse, True, 1e-5, [True, True, True]
                    )
                )
            )
        if name.startswith("batch_norm"):
            _, saved, inverse, reserve = aten.cudnn_batch_norm(x, w, shift, mean, var, True, 0.1, 1e-5)
            return (
                (lambda: aten.cudnn_batch_norm(x, w, shift, mean, var, True, 0.1, 1e-5))
                if name == "batch_norm"
                else (
                    lambda: aten.cudnn_batch_norm_backward(x, y, w, mean, var, saved, inverse, 1e-5, reserve)
                )
            )
        groups = min(32, c // 4)
        _, mean, rstd = aten.native_group_norm(x, w, shift, n, c, p * p, groups, 1e-5)
        return (
            (lambda: aten.native_group_norm(x, w, shift, n, c, p * p, groups, 1e-5))
            if name == "native_group_norm"
            else (
                lambda: aten.native_group_norm_backward(
                    y, x, mean, rstd, w, n, c, p * p, groups, [True, True, True]
                )
            )
        )
    forward: dict[str, Any] = {
        "max_pool": lambda t: F.max_pool2d(t, 3, 2, 1), "avg_pool": lambda t: F.avg_pool2d(t, 2), "adaptive": lambda t: F.adaptive_avg_pool2d(t, 7),
        "nearest": lambda t: F.interpolate(t, scale_factor=2), "bilinear": lambda t: F.interpolate(t, scale_factor=2, mode="bilinear"),
    }  # fmt: skip
    make = forward[name.removesuffix("_backward")]
    if not name.endswith("_backward"):
        return lambda: make(x)
    x = x.detach().requires_grad_()
    out = make(x)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, x, gradient, retain_graph=True)


def _lookup(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    name, vocabulary, width, rows = spec["name"], spec["vocabulary"], spec["width"], spec["rows"]
    places = torch.randint(vocabulary, (rows,), device=pool.device)
    table, values = pool.of(dtype, vocabulary, width), pool.of(dtype, rows, width)
    wide = places[:, None].expand(rows, width)
    calls: dict[str, Call] = {
        "embedding": lambda: aten.embedding(table, places), "embedding_dense_backward": lambda: aten.embedding_dense_backward(values, places, vocabulary, -1, False),
        "index": lambda: table[places], "index_put_accumulate": lambda: table.index_put_((places,), values, accumulate=True),
        "gather": lambda: table.gather(0, wide), "scatter_add_": lambda: table.scatter_add_(0, wide, values), "index_add_": lambda: table.index_add_(0, places, values),
    }  # fmt: skip
    return calls[name]


def _sorted(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    name, x = spec["name"], pool.of(dtype, spec["rows"], spec["width"])
    labels = torch.randint(64, (spec["rows"] * spec["width"],), device=pool.device)
    calls: dict[str, Call] = {
        "topk": lambda: x.topk(min(8, spec["width"])), "sort": x.sort, "argsort": labels.argsort, "cumsum": lambda: x.cumsum(-1),
        "one_hot": lambda: torch.nn.functional.one_hot(labels, 64), "nonzero": x.nonzero,
    }  # fmt: skip
    return calls[name]


def _recurrent(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    kind = torch.nn.LSTM if spec["name"] == "lstm" else torch.nn.GRU
    layer = kind(spec["w"], spec["w"], spec["layers"], batch_first=True, device=pool.device, dtype=dtype)
    x = pool.of(dtype, spec["b"], spec["t"], spec["w"]).requires_grad_()
    if spec["part"] == "forward":
        return lambda: layer(x)
    out = layer(x)[0]
    gradient, wanted = torch.randn_like(out), [x, *layer.parameters()]
    return lambda: torch.autograd.grad(out, wanted, gradient, retain_graph=True)


def _sum_mid(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    x = pool.of(dtype, spec["n"], spec["kept"], spec["inner"])
    return lambda: x.sum((0, 2))


def _other(dtype: torch.dtype) -> torch.dtype:
    return torch.bfloat16 if dtype == torch.float32 else torch.float32


def _reordered(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    """A copy between two orders in memory (`denser.copies`)."""
    a, b, kind = spec["a"], spec["b"], spec["kind"]
    if kind == "runs":
        source = pool.of(dtype, a, b, spec["c"], spec["run"]).transpose(1, 2)
    elif kind == "turned":
        source = pool.of(dtype, a, b, spec["c"]).transpose(1, 2)
    else:
        source = pool.of(dtype, a, b * spec["run"])[:, : spec["run"]]
    if spec.get("cast"):
        to = _other(dtype)
        return lambda: source.to(to, memory_format=torch.contiguous_format)
    return source.contiguous


def _joined(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    """Tensors of rows of `run` elements, the first of so many times as long ones."""
    runs = [spec["run"] * spec["first"], *[spec["run"]] * (spec["number"] - 1)]
    tensors = [pool.of(dtype, spec["a"], run) for run in runs]
    return lambda: torch.cat(tensors, 1)


def _broadcast(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    name, n, run = spec["name"], spec["n"], spec["run"]
    if name == "channel_mul":
        x, channel = (
            pool.of(dtype, max(n // spec["c"], 1), spec["c"], run),
            pool.of(dtype, 1, spec["c"], 1),
        )
        return lambda: x * channel
    x = pool.of(dtype, n, run)
    other = pool.of(dtype, run) if name == "bias_add" else pool.of(dtype, n, 1)
    return (lambda: x + other) if name == "bias_add" else (lambda: x * other)


def _mixed(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    """An operator of two types."""
    x, y = pool.of(dtype, spec["count"]), pool.of(_other(dtype), spec["count"])
    calls: dict[str, Call] = {"add": lambda: x + y, "mul": lambda: x * y, "add_": lambda: x.add_(y)}
    return calls[spec["name"]]


def _pool(spec: Spec, pool: Pool, dtype: torch.dtype) -> Call:
    name, p, q, r = spec["name"], spec["p"], spec["q"], spec["r"]
    memory = torch.channels_last if spec["layout"] == "nhwc" else torch.contiguous_format
    x = pool.of(dtype, spec["n"], spec["c"], p, p).to(memory_format=memory)
    F = torch.nn.functional
    stride, padding = max(round(p / q), 1), r // 2 if r % 2 else 0
    forward: dict[str, Any] = {
        "max_pool": lambda t: F.max_pool2d(t, r, stride, padding), "avg_pool": lambda t: F.avg_pool2d(t, r, stride, padding),
        "adaptive": lambda t: F.adaptive_avg_pool2d(t, q), "nearest": lambda t: F.interpolate(t, size=(q, q)),
        "bilinear": lambda t: F.interpolate(t, size=(q, q), mode="bilinear"),
    }  # fmt: skip
    make = forward[name.removesuffix("_backward")]
    if not name.endswith("_backward"):
        return lambda: make(x)
    x = x.detach().requires_grad_()
    out = make(x)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, x, gradient, retain_graph=True)


_BUILDERS: dict[str, Callable[[Spec, Pool, torch.dtype], Call]] = {
    "mm": _product, "addmm": _product, "grouped_mm": _grouped, "conv": _convolution, "attention": _attention, "moved": _moved, "reduced": _reduced,
    "foreach": _foreach, "rows": _rows, "planes": _planes, "lookup": _lookup, "sorted": _sorted, "recurrent": _recurrent,
    "sum_mid": _sum_mid, "runs": _reordered, "turned": _reordered, "part": _reordered, "joined": _joined, "broadcast": _broadcast, "mixed": _mixed,
    "pool": _pool,
}  # fmt: skip
