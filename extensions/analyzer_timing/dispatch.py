"""From an operator of the captured program to what the device does for it: none, one or several pieces of
work.

1. A view does nothing: every result lies in a storage that was there, and none is written. Nor does making a
   tensor that is not filled, nor an operator whose tensors are all on the host.
2. Products, convolutions, attention and the rest of `traffic.py` by their names; all others count as
   elementwise.
3. An operator with a rule that takes several kernels (a gradient of a slice: zeros, then a copy) has a piece
   for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

from analyzer.graph.model import Operator, Storage, TensorMeta, tensors_in
from analyzer.tables import by_name
from analyzer_timing import compiled, traffic
from analyzer_timing.attention import attention
from analyzer_timing.convolutions import Convolution, convolution
from analyzer_timing.elementwise import copied, elementwise, size_of
from analyzer_timing.fused import fused
from analyzer_timing.moves import MOVES, filled, gradient_of_part, joined, moved
from analyzer_timing.operands import channels_last, copied_first
from analyzer_timing.products import grouped, product
from analyzer_timing.rates import Rates
from analyzer_timing.work import Work, log

Rule = Callable[[Operator, str, Rates], list[Work]]
_QUERIES = ("_has_compatible", "is_", "sym_", "_local_scalar_dense")
_EMPTY = ("empty", "new_empty", "lift_fresh", "set_", "resize_", "record_stream", *_QUERIES)


def plain_name(operator: Operator) -> str:
    """Return "add" of "aten::add.Tensor"."""
    return operator.name.partition("::")[2].partition(".")[0]


def works_of(operator: Operator, storages: tuple[Storage, ...], rates: Rates) -> list[Work]:
    """Return the pieces of work the device does for an operator."""
    name = plain_name(operator)
    inputs = operator.inputs
    outputs = [t for t in operator.outputs if t is not None]
    if not any(storages[t.storage].on_device for t in (*inputs, *outputs)):
        return []
    if name.startswith(_EMPTY):
        return []
    if not operator.writes and inputs and outputs:
        read = {t.storage for t in inputs}
        if all(t.storage in read for t in outputs):
            return []
    if operator.domain == compiled.DOMAIN:
        return fused(operator, rates)
    rule = _RULES.get(name)
    if rule is None and name.startswith(("_foreach", "_fused_a", "_fused_s", "_amp_foreach")):
        rule = _lists
    if name in ("_to_copy", "copy_", "clone", "_copy_from"):
        return _copies(operator, name, storages, rates)
    return [*copied_first(operator, name, rates), *(rule or elementwise)(operator, name, rates)]


def _copies(operator: Operator, name: str, storages: tuple[Storage, ...], rates: Rates) -> list[Work]:
    inputs = operator.inputs
    source = inputs[1] if name == "copy_" and len(inputs) > 1 else inputs[0]
    target = inputs[0] if name == "copy_" else next((t for t in operator.outputs if t is not None), inputs[0])
    if storages[source.storage].on_device != storages[target.storage].on_device:
        return [traffic.from_host(max(target.element_count * size_of(source), 1), rates)]
    if name == "copy_" and len(inputs) < 2:
        return elementwise(operator, "fill_", rates)
    return copied(source, target, rates)


def _layout(tensor: TensorMeta) -> str:
    """Return "t" if the matrix is a transposed view, else "n"."""
    rows, columns = tensor.shape[-2:]
    down, right = tensor.stride[-2:]
    return "t" if down == 1 and right >= max(rows, 1) and (columns > 1 or right > 1) and right != 1 else "n"


def _layouts(left: TensorMeta, right: TensorMeta) -> str:
    """Return both layouts. For two transposed views cuBLAS computes the transposed product."""
    layout = _layout(left) + _layout(right)
    return "nn" if layout == "tt" else layout


def _computed_in(tensor: TensorMeta, tf32: bool) -> str:
    """The type a product or a convolution computes in."""
    if tensor.dtype in ("bfloat16", "float16"):
        return tensor.dtype
    return "tf32" if tf32 else "float32"


def _product(operator: Operator, name: str, rates: Rates) -> list[Work]:
    inputs = operator.inputs
    if name in ("addmm", "baddbmm", "addmv", "addbmm"):
        inputs = inputs[1:]
    if len(inputs) < 2:
        return elementwise(operator, name, rates)
    left, right = inputs[0], inputs[1]
    dtype = _computed_in(left, "tf32" in operator.settings)
    if name in ("mv", "addmv", "dot", "vdot"):
        rows = left.shape[0] if len(left.shape) > 1 else 1
        return [product(rows, 1, left.shape[-1], 1, dtype, "nn", rates)]
    batch = left.shape[0] if len(left.shape) == 3 else 1
    m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
    if not all((batch, m, n, k)):
        return []
    return [product(m, n, k, batch, dtype, _layouts(left, right), rates, bias=name == "addmm")]


def _grouped(operator: Operator, name: str, rates: Rates) -> list[Work]:
    """Return the work of a grouped product: a batch with rows spread evenly over the groups."""
    del name
    left, right = operator.inputs[0], operator.inputs[1]
    groups = (
        right.shape[0]
        if len(right.shape) == 3
        else (operator.inputs[2].shape[0] if len(operator.inputs) > 2 else 1)
    )
    m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
    if len(right.shape) == 2:
        k = max(k // groups, 1)
    else:
        m = max(m // groups, 1)
    layout = _layouts(left, right)
    if not m * n * k:
        return []
    if left.dtype == "bfloat16":
        return [grouped(m, n, k, groups, rates)]
    dtype = "float16" if left.dtype == "float16" else "float32"
    # PyTorch's fallback: one after the other
    return [product(m, n, k, 1, dtype, layout, rates) for _ in range(groups)]


def _conv_parts(
    operator: Operator,
    parts: tuple[str, ...],
    x: TensorMeta,
    weight: TensorMeta,
    out: TensorMeta,
    rates: Rates,
) -> list[Work]:
    transposed, groups = bool(operator.argument("transposed")), operator.integer("groups", default=1)
    stride, dilation = operator.integers("stride") or (1,), operator.integers("dilation") or (1,)
    dtype = _computed_in(x, "no_tf32" not in operator.settings)
    launches = []
    for part in parts:
        conv = Convolution(
            part,
            dtype,
            channels_last(x) or channels_last(weight),
            len(x.shape) - 2,
            x.shape[0],
            x.shape[1],
            out.shape[1],
            prod(x.shape[2:]),
            prod(out.shape[2:]),
            prod(weight.shape[2:]),
            stride[0],
            dilation[0],
            groups,
            transposed,
        )
        launches.append(convolution(conv, rates))
    return launches


def _convolution(operator: Operator, name: str, rates: Rates) -> list[Work]:
    del name
    x, weight, out = operator.tensor("input"), operator.tensor("weight"), operator.outputs[0]
    if x is None or weight is None or out is None or not out.element_count:
        return []
    launches = _conv_parts(operator, ("forward",), x, weight, out, rates)
    if operator.tensor("bias") is not None and not launches[0].category.endswith("depthwise"):
        nbytes = out.element_count * size_of(out)  # cuDNN's result, to which PyTorch adds the bias
        last = channels_last(out)
        kind, run = ("bias_add", out.shape[1]) if last else ("channel_mul", prod(out.shape[2:]))
        count, sizes = out.element_count, (log(run),)
        launches.append(traffic.strided(kind, size_of(out), count, 2 * nbytes, nbytes, rates, sizes))
    return launches


def _convolution_backward(operator: Operator, name: str, rates: Rates) -> list[Work]:
    del name
    grad, x, weight = operator.tensor("grad_output"), operator.tensor("input"), operator.tensor("weight")
    if x is None or weight is None or grad is None or not grad.element_count:
        return []
    wanted = operator.flags("output_mask", 3)
    parts = tuple(part for part, needed in zip(("input", "weight"), wanted, strict=False) if needed)
    launches = _conv_parts(operator, parts, x, weight, grad, rates)
    if wanted[2]:
        n, c, size = grad.shape[0], grad.shape[1], size_of(grad)
        launches.append(
            traffic.reduced("sum_first", size, grad.element_count, c, rates)
            if channels_last(grad)
            else traffic.summed(size, n, c, prod(grad.shape[2:]), rates)
        )
    return launches


def _attention(operator: Operator, name: str, rates: Rates) -> list[Work]:
    kernel = next((kind for kind in ("flash", "efficient", "cudnn") if kind in name), "flash")
    q, k = operator.tensor("query"), operator.tensor("key")
    if q is None or k is None or len(q.shape) != 4:
        return elementwise(operator, name, rates)
    sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2], q.shape[3])
    part = "backward" if "backward" in name else "forward"
    return [attention(kernel, q.dtype, part, sizes, bool(operator.argument("is_causal")), rates)]


def _normalized(operator: Operator, name: str, rates: Rates) -> list[Work]:
    x = operator.tensor("input", "self", "grad_out", "grad_output")
    if x is None or not x.element_count:
        return []
    shape = operator.integers("normalized_shape")
    width = prod(shape) if shape else x.shape[-1]
    return [traffic.rows(name, size_of(x), x.element_count / width, width, rates)]


def _softmax(operator: Operator, name: str, rates: Rates) -> list[Work]:
    x = operator.tensor("self", "grad_output", "input")
    if x is None or not x.element_count or not x.shape:
        return []
    width = x.shape[operator.integer("dim", default=-1)]
    operator_name = {"_safe_softmax": "_softmax", "_masked_softmax": "_softmax"}.get(name, name)
    return [traffic.rows(operator_name, size_of(x), x.element_count / width, width, rates)]


def _losses(operator: Operator, name: str, rates: Rates) -> list[Work]:
    x = operator.tensor("self")
    if x is None or not x.element_count:
        return []
    width = x.shape[1] if len(x.shape) > 1 else x.shape[0]
    if "2d" in name or len(x.shape) > 2:
        return [traffic.vectors("clone", size_of(x), x.element_count * size_of(x), 0, rates)]
    return [traffic.rows(name, size_of(x), x.element_count / width, width, rates)]


def _batch_norm(operator: Operator, name: str, rates: Rates) -> list[Work]:
    x = operator.tensor("input", "grad_out")
    if x is None or not x.element_count or len(x.shape) < 2:
        return []
    half, trained = size_of(x) == 2, operator.argument("training", "train", default=True)
    kind = "batch_norm_backward" if "backward" in name else "batch_norm" if trained else "batch_norm_eval"
    weight = operator.tensor("weight")
    if (half and (weight is None or weight.dtype == "float32")) or (
        name.startswith("native") and kind != "batch_norm_eval"
    ):
        kind = f"mixed_{kind}"
    sizes = (x.shape[0], x.shape[1], prod(x.shape[2:]))
    return [traffic.planes(kind, size_of(x), channels_last(x), sizes, rates)]


def _group_norm(operator: Operator, name: str, rates: Rates) -> list[Work]:
    x = operator.tensor("input", "grad_out")
    if x is None or not x.element_count:
        return []
    sizes = (operator.integer("N"), operator.integer("C"), operator.integer("HxW"))
    return [traffic.planes(name, size_of(x), False, sizes, rates)]


_POOLS = by_name(
    {
        "max_pool": "max_pool2d_with_indices max_pool3d_with_indices",
        "avg_pool": "avg_pool2d avg_pool3d avg_pool1d",
        "adaptive": "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d",
        "nearest": "upsample_nearest2d upsample_nearest3d upsample_nearest1d _upsample_nearest_exact2d",
        "bilinear": "upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d",
    }
)


def _planes(operator: Operator, name: str, rates: Rates) -> list[Work]:
    backward = name.endswith("_backward")
    kind = _POOLS[name.removesuffix("_backward")]
    out, grad = operator.outputs[0], operator.tensor("grad_output")
    x = operator.tensor("self", "input") if not backward else out
    far = grad if backward else out
    if x is None or far is None or len(x.shape) < 3:
        return []
    kind += "_backward" if backward else ""
    ahead = 1 if len(x.shape) == 3 and "1d" not in name else 2  # a picture without its batch
    sizes = prod(x.shape[:ahead]), prod(x.shape[ahead:]), prod(far.shape[ahead:])
    window = prod(operator.integers("kernel_size") or (1,)) if kind.startswith(("max", "avg")) else 1
    return [traffic.pooled(kind, size_of(x), channels_last(x), sizes, window, rates)]


_SORTED = by_name(
    {
        "topk": "topk multinomial kthvalue",
        "sort": "sort unique_dim _unique2",
        "argsort": "argsort",
        "one_hot": "one_hot",
        "nonzero": "nonzero",
        "cumsum": "histc bincount",
    }
)


def _sorting(operator: Operator, name: str, rates: Rates) -> list[Work]:
    x = next(iter(operator.inputs), None)
    if x is None or not x.element_count:
        return []
    width = x.shape[-1] if x.shape else 1
    return [traffic.sorting(_SORTED[name], x.element_count / width, width, rates)]


_LOOKUPS = by_name(
    {
        "embedding": "embedding",
        "embedding_dense_backward": "embedding_dense_backward",
        "index": "index index_select _unsafe_index index_copy_",
        "gather": "gather take_along_dim",
        "index_put_accumulate": "index_put index_put_ _index_put_impl_ _unsafe_index_put",
        "scatter_add_": "scatter_add_ scatter_add scatter scatter_",
        "index_add_": "index_add_ index_add",
    }
)


def _lookups(operator: Operator, name: str, rates: Rates) -> list[Work]:
    inputs = operator.inputs
    out = next((t for t in operator.outputs if t is not None), None)
    kind = _LOOKUPS[name]
    moved: TensorMeta | None
    table: TensorMeta | None
    if kind == "embedding_dense_backward":
        moved, table = inputs[0], out
    elif kind in ("embedding", "index", "gather"):
        moved, table = out, inputs[0]
    else:
        table, dtype = inputs[0], inputs[0].dtype
        moved = next((t for t in reversed(inputs[1:]) if t.dtype == dtype), inputs[-1])
        if kind == "index_put_accumulate" and not operator.argument("accumulate"):
            kind = "index"
    if moved is None or table is None or not moved.element_count or not table.shape:
        return []
    width = table.shape[-1] if len(table.shape) > 1 else 1
    return [
        traffic.lookup(
            kind,
            size_of(moved),
            (moved.element_count / width, width, table.element_count / max(width, 1)),
            rates,
        )
    ]


def _reduced(operator: Operator, name: str, rates: Rates) -> list[Work]:
    x = next(iter(operator.inputs), None)
    out = next((t for t in operator.outputs if t is not None), None)
    if x is None or out is None or not x.element_count:
        return []
    kind = _REDUCTIONS[name]
    if kind == "cumsum":
        width = x.shape[operator.integer("dim", default=-1)] if x.shape else 1
        return [traffic.reduced("cumsum_last", size_of(x), x.element_count, width, rates)]
    dims = operator.integers("dim")
    gone = sorted({d % len(x.shape) for d in dims}) if dims and x.shape else list(range(len(x.shape)))
    gone = [d for d in gone if x.shape[d] > 1]
    if out.element_count == 1:
        return [
            traffic.reduced(
                "norm_all" if kind == "norm" else "sum_all", size_of(x), x.element_count, 196, rates
            )
        ]
    if not gone:
        return elementwise(operator, "clone", rates)
    near = min(
        (d for d in range(len(x.shape)) if x.shape[d] > 1 and x.stride[d]),
        key=lambda d: x.stride[d],
        default=0,
    )
    if near in gone:
        width = prod(x.shape[d] for d in gone)
        beside = [d for d in gone if x.stride[d] >= out.element_count and len(gone) > 1 and d != near]
        if beside and kind in ("sum", "mean", "norm"):
            inner = prod(x.shape[d] for d in gone if d not in beside)
            return [traffic.summed(size_of(x), width / inner, out.element_count, inner, rates)]
        which = {
            "sum": "sum_last",
            "mean": "mean_last",
            "amax": "amax_last",
            "argmax": "argmax_last",
            "var": "var_last",
            "norm": "mean_last",
        }[kind]
        return [traffic.reduced(which, size_of(x), x.element_count, width, rates)]
    return [traffic.reduced("sum_first", size_of(x), x.element_count, out.element_count, rates)]


_REDUCTIONS = by_name(
    {
        "sum": "sum prod count_nonzero",
        "mean": "mean",
        "amax": "amax amin any all logsumexp",
        "argmax": "max min argmax argmin",
        "var": "var var_mean std std_mean",
        "norm": "linalg_vector_norm norm",
        "cumsum": "cumsum cumprod",
    }
)


_FOREACH = by_name(
    {
        "_foreach_sqrt": "_foreach_sqrt _foreach_sqrt_",
        "_foreach_norm": "_foreach_norm",
        "_foreach_zero_": "_foreach_zero_",
        "_foreach_lerp_": "_foreach_lerp_",
        "_foreach_addcmul_": "_foreach_addcmul_",
        "_foreach_addcdiv_": "_foreach_addcdiv_",
        "_foreach_copy_": "_foreach_copy_",
        "_foreach_maximum_": "_foreach_maximum_",
        "_fused_adamw_": "_fused_adam_ _fused_adamw_",
        "_fused_sgd_": "_fused_sgd_ _fused_adagrad_",
        "_foreach_div_": "_foreach_div_",
    }
)


def _lists(operator: Operator, name: str, rates: Rates) -> list[Work]:
    first = operator.arguments[0] if operator.arguments else None
    tensors = [t for t in tensors_in(first) if t.element_count] if first is not None else []
    if not tensors:
        return []
    total = sum(t.element_count for t in tensors)
    kind = _FOREACH.get(name)
    if kind is None:
        second = operator.arguments[1] if len(operator.arguments) > 1 else None
        two = isinstance(second, tuple) and any(True for _ in tensors_in(second))
        kind = ("_foreach_add_" if name.endswith("_") else "_foreach_add") if two else "_foreach_mul_"
    return [traffic.lists(kind, size_of(tensors[0]), len(tensors), total / len(tensors), rates)]


def _recurrent(operator: Operator, name: str, rates: Rates) -> list[Work]:
    x = operator.tensor("input")
    if x is None or len(x.shape) != 3:
        return elementwise(operator, name, rates)
    first = bool(operator.argument("batch_first"))
    batch, steps = (x.shape[0], x.shape[1]) if first else (x.shape[1], x.shape[0])
    both = 2 if operator.argument("bidirectional") else 1
    layers, width = (
        operator.integer("num_layers", default=1) * both,
        operator.integer("hidden_size", default=x.shape[2]),
    )
    kind = "gru" if operator.integer("mode", default=2) == 3 else "lstm"
    part = "backward" if "backward" in name else "forward"
    return [traffic.recurrent(kind, size_of(x), part, (layers, steps, batch, width), rates)]


_BY_RULE: tuple[tuple[Rule, str], ...] = (
    (_product, "mm bmm addmm baddbmm mv addmv dot vdot addbmm _int_mm _scaled_mm"),
    (_grouped, "_grouped_mm"),
    (_convolution, "convolution _convolution"),
    (_convolution_backward, "convolution_backward"),
    (_attention, "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward"),
    (_attention, "_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward"),
    (_attention, "_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward"),
    (_normalized, "native_layer_norm native_layer_norm_backward _fused_rms_norm _fused_rms_norm_backward"),
    (_softmax, "_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data _safe_softmax"),
    (_losses, "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward"),
    (_batch_norm, "cudnn_batch_norm cudnn_batch_norm_backward native_batch_norm native_batch_norm_backward"),
    (_batch_norm, "_native_batch_norm_legit _native_batch_norm_legit_no_training batch_norm_backward"),
    (_group_norm, "native_group_norm native_group_norm_backward"),
    (gradient_of_part, "select_backward slice_backward diagonal_backward slice_scatter select_scatter"),
    (joined, "cat stack"),
    (filled, "masked_fill"),
    (_recurrent, "_cudnn_rnn _cudnn_rnn_backward"),
)
_TABLES: tuple[tuple[Rule, Iterable[str]], ...] = (
    (_planes, [*_POOLS, *(f"{name}_backward" for name in _POOLS)]),
    (_sorting, _SORTED),
    (_lookups, _LOOKUPS),
    (_reduced, _REDUCTIONS),
    (moved, MOVES),
)
_RULES = {name: rule for rule, names in _BY_RULE for name in names.split()}
_RULES |= {name: rule for rule, names in _TABLES for name in names}
