"""Whole programs, drawn by hypothesis: networks of all families, odd shapes, types, losses, optimizers, and how training is written.

A program is text. What is drawn is small, so that a failure shrinks to a few lines: every choice's first is the plainest.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from hypothesis import strategies as st

Draw = Callable[..., object]

_ACTIVATIONS = (
    "nn.ReLU()",
    "nn.GELU()",
    "nn.SiLU()",
    "nn.ReLU(inplace=True)",
    "nn.Tanh()",
    "nn.Softplus()",
    "nn.Hardswish()",
    "nn.PReLU()",
)
_OPTIMIZERS = (
    "SGD(net.parameters(), 0.1)", "SGD(net.parameters(), 0.1, momentum=0.9, nesterov=True)", "Adam(net.parameters())",
    "AdamW(net.parameters(), fused=True)", "Adam(net.parameters(), foreach=False, amsgrad=True)", "RMSprop(net.parameters(), centered=True)",
    "Adagrad(net.parameters())", "NAdam(net.parameters())", "RAdam(net.parameters())", "Adamax(net.parameters())", "ASGD(net.parameters())",
    "Rprop(net.parameters())", "Adadelta(net.parameters())",
)  # fmt: skip
# What is done to a matrix y of floating-point numbers with a gradient, n its rows.
_OPERATIONS = (
    "y = y + y.cumsum(1)", "y = y.sort(1).values", "y = y.softmax(1) * y", "y = torch.logsumexp(y, 1, keepdim=True) + y",
    "y = y.gather(1, y.argsort(1))", "y = y[torch.randperm(n, device=dev)]", "y = y.roll(1, 0).flip(1)", "y = torch.where(y > 0, y, y * 0.1)",
    "y = F.pad(y, (3, 5))", "y = F.layer_norm(y, y.shape[1:])", "y = torch.cat([y, y.sin()], 1)", "y = y - y.amax(1, keepdim=True)",
    "y = torch.einsum('ij,kj->ik', y, y[: n // 2 + 1])", "y = y @ y.t()", "y = F.normalize(y) * y.std()", "y = y.index_add(0, labels, y)",
    "y = y.masked_fill(y < 0, 0.0)", "y = torch.stack([y, -y]).mean(0)", "y = y.clamp(-1, 1).pow(2) + y", "y = y.repeat_interleave(2, 1)",
    "y = F.unfold(y[None, None], (1, 3), padding=(0, 1)).squeeze(0).t()[:n]", "y = y.abs().sqrt() + y.exp().log1p()", "y = y.t().contiguous().t()",
    "y = torch.cdist(y, y[: n // 3 + 1])", "y = y.median(1, keepdim=True).values + y", "y = torch.scatter_add(y, 0, labels[:, None].expand_as(y), y)",
    "y = F.gumbel_softmax(y) + y", "y = y.diff(dim=1)", "y = y[:, torch.arange(y.shape[1], device=dev) % 2 == 0]", "y = F.dropout(y, 0.3)",
    "y = y.topk(min(5, y.shape[1]), 1).values", "y = y.var(1, keepdim=True) * y", "y = y.view(n, -1, 1).expand(-1, -1, 3).reshape(n, -1)",
)  # fmt: skip
_LOSSES = (
    "y.square().mean()", "F.cross_entropy(y, labels % y.shape[1])", "F.mse_loss(y, torch.zeros_like(y))",
    "F.binary_cross_entropy_with_logits(y, (y.detach() > 0).float())", "F.smooth_l1_loss(y, y.detach().roll(1, 0))",
    "F.kl_div(y.log_softmax(1), y.detach().softmax(1), reduction='batchmean')", "F.multi_margin_loss(y, labels % y.shape[1])",
    "F.cross_entropy(y, labels % y.shape[1], label_smoothing=0.1, reduction='sum')", "F.huber_loss(y, y.detach() * 0.5)",
)  # fmt: skip
# What stands behind a step.
_BESIDE = (
    "", "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)", "torch.nn.utils.clip_grad_value_(net.parameters(), 0.1)",
    "[p.grad.mul_(0.5) for p in net.parameters() if p.grad is not None]", "history.append(loss.detach())", "history.append(y)",
    "kept = [p.detach().clone() for p in net.parameters()]",
)  # fmt: skip
_BETWEEN = (
    "", "net.eval()\n    with torch.no_grad():\n        out = net(x)\n    net.train()", "print(loss.item())", "del y, loss",
    "torch.cuda.empty_cache()", "counts = torch.bincount(labels, minlength=7)\n    found = labels.unique()",
    "chosen = x[labels == 1]", "torch.cuda.synchronize()", "state = {k: v.cpu() for k, v in net.state_dict().items()}",
    "with torch.cuda.stream(side):\n        z = x.clone() * 2\n    torch.cuda.current_stream().wait_stream(side)",
)  # fmt: skip


@st.composite
def programs(draw: Draw) -> str:
    """The text of a program that trains, or runs, a network of its own on the GPU."""

    def pick(*options: str) -> str:
        return str(draw(st.sampled_from(options)))

    def number(least: int, most: int) -> int:
        return int(str(draw(st.sampled_from(range(least, most + 1)))))

    n = number(2, 2500)
    body, x = _network(pick, number, n)
    trains = pick("True", "True", "False")
    amp = pick("", "bfloat16", "float16")
    kind = pick("float32", "float32", "bfloat16") if not amp else "float32"
    operations = [pick(*_OPERATIONS) for _ in range(number(0, 4))]
    lines = ["import os"]
    setting = pick(
        "", "", "", "expandable_segments:True", "max_split_size_mb:32", "garbage_collection_threshold:0.6"
    )
    lines += [f'os.environ["PYTORCH_ALLOC_CONF"] = "{setting}"'] if setting else []
    lines += [
        "import torch", "import torch.nn.functional as F", "from torch import nn", "from torch.utils.checkpoint import checkpoint",
        'dev = "cuda"', "history, side = [], torch.cuda.Stream()", body, f"net = Net().to(dev, torch.{kind})",
        f"n, labels = {n}, torch.arange({n}, device=dev) % {number(2, 11)}",
    ]  # fmt: skip
    between = pick(*_BETWEEN)
    if trains == "False":
        lines += [
            "net.eval()", f"for step in range({number(1, 3)}):", f"    x = {x.replace('KIND', kind)}", "    with torch.no_grad():",
            *(f"        {line}" for line in ("y = net(x).float()", *operations)),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"
    accumulates, scaled = number(1, 2), amp == "float16"
    run = pick("net(x)", "net(x)", "checkpoint(net, x, use_reentrant=False)")
    lines += [f"opt = torch.optim.{pick(*_OPTIMIZERS)}"] + (
        ["scaler = torch.amp.GradScaler()"] if scaled else []
    )
    lines += [
        f"for step in range({number(1, 3)}):",
        f"    for part in range({accumulates}):",
        f"        x = {x.replace('KIND', kind)}",
    ]
    forward = [f"y = {run}.float()", *operations, f"loss = {pick(*_LOSSES)}"]
    lines += [f"        with torch.autocast(dev, torch.{amp}):"] if amp else ["        if True:"]
    lines += [f"            {line}" for line in forward]
    lines += ["        (scaler.scale(loss)).backward()" if scaled else "        loss.backward()"]
    if beside := pick(*_BESIDE):
        lines += ["    scaler.unscale_(opt)"] * scaled + [f"    {beside}"]
    lines += ["    scaler.step(opt)", "    scaler.update()"] if scaled else ["    opt.step()"]
    lines += [f"    opt.zero_grad({pick('', 'set_to_none=False')})"] + ([f"    {between}"] if between else [])
    return "\n".join(lines) + "\n"


def _network(pick: Callable[..., str], number: Callable[[int, int], int], n: int) -> tuple[str, str]:
    """A class `Net` whose result has n rows, and what it is given (KIND stands for its type)."""
    act = pick(*_ACTIVATIONS)
    family = pick("mlp", "cnn", "transformer", "recurrent", "embedding")
    last = number(1, 70)
    if family == "mlp":
        widths = [number(1, 90) * number(1, 20) for _ in range(number(1, 3))]
        layers = []
        for a, b in zip([number(1, 800), *widths], [*widths, last], strict=False):
            layers += [f"nn.Linear({a}, {b}, bias={pick('True', 'False')})", act]
            layers += (
                [norm]
                if (norm := pick("", "", f"nn.LayerNorm({b})", f"nn.RMSNorm({b})", "nn.Dropout(0.2)"))
                else []
            )
        first = layers[0].partition("(")[2].partition(",")[0]
        return _net(layers), f"torch.randn({n}, {first}, device=dev, dtype=torch.KIND)"
    if family == "cnn":
        c, size, channels = number(1, 4), number(20, 48), number(1, 6) * 8
        kernel, stride, groups = number(1, 5), number(1, 2), number(1, 2)
        layers = [
            f"nn.Conv2d({c}, {channels}, {kernel}, stride={stride}, padding={number(0, 2)}, bias={pick('True', 'False')})",
            pick(f"nn.BatchNorm2d({channels})", f"nn.GroupNorm(4, {channels})", f"nn.InstanceNorm2d({channels})", "nn.Identity()"), act,
            pick("nn.Identity()", "nn.MaxPool2d(2)", "nn.AvgPool2d(2)", "nn.Upsample(scale_factor=2, mode='bilinear')"),
            f"nn.Conv2d({channels}, {2 * channels}, 3, padding=1, groups={groups}, dilation={number(1, 2)})", act,
            pick("nn.AdaptiveAvgPool2d(2)", "nn.AdaptiveMaxPool2d(2)"), "nn.Flatten()", f"nn.Linear({8 * channels}, {last})",
        ]  # fmt: skip
        return _net(layers), f"torch.randn({n}, {c}, {size}, {size}, device=dev, dtype=torch.KIND)"
    if family == "transformer":
        heads, wide, length = number(1, 4), number(1, 8) * 8, number(2, 60)
        layer = (
            f"nn.TransformerEncoderLayer({heads * wide}, {heads}, {number(1, 300)}, activation='{pick('relu', 'gelu')}', "
            f"batch_first=True, norm_first={pick('False', 'True')})"
        )
        mask = "nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device, dtype=x.dtype)"
        forward = f"return self.head(self.body(x, mask={pick('None', mask)}).mean(1))"
        return (
            _class(f"nn.TransformerEncoder({layer}, {number(1, 2)})", f"nn.Linear({heads * wide}, {last})", forward),
            f"torch.randn({n}, {length}, {heads * wide}, device=dev, dtype=torch.KIND)",
        )  # fmt: skip
    if family == "recurrent":
        inputs, hidden, both = number(1, 90), number(1, 90), pick("False", "True")
        kind = pick("LSTM", "GRU", "RNN")
        body = f"nn.{kind}({inputs}, {hidden}, {number(1, 3)}, batch_first=True, bidirectional={both}, dropout={pick('0.0', '0.1')})"
        head = f"nn.Linear({hidden * (1 + (both == 'True'))}, {last})"
        return (
            _class(body, head, "return self.head(self.body(x)[0][:, -1])"),
            f"torch.randn({n}, {number(1, 40)}, {inputs}, device=dev, dtype=torch.KIND)",
        )  # fmt: skip
    words, wide = number(1, 40) * 100, number(1, 200)
    bag = pick(
        "nn.Embedding({}, {})", "nn.EmbeddingBag({}, {}, mode='mean')", "nn.EmbeddingBag({}, {}, mode='max')"
    ).format(words, wide)
    forward = "y = self.body(x)\n        return self.head(y.mean(1) if y.dim() == 3 else y)"
    return (
        _class(bag, f"nn.Linear({wide}, {last})", forward),
        f"torch.randint(0, {words}, ({n}, {number(1, 50)}), device=dev)",
    )  # fmt: skip


def _net(layers: list[str]) -> str:
    listed = ",\n    ".join(layers)
    return f"def Net():\n    return nn.Sequential(\n    {listed},\n    )"


def _class(body: str, head: str, forward: str) -> str:
    return textwrap.dedent(
        f"""\
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = {body}
                self.head = {head}

            def forward(self, x):
                {forward.replace(chr(10), chr(10) + "        ")}
        """
    )
