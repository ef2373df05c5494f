"""Small programs whose allocator's history is recorded: each a function of torch alone (two take a model of a library).

They are deterministic in what they ask the allocator for, so that a run under one setting and a run under another ask for the same. All
run in a few seconds, and hold less than 8 GiB.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import nn

PROGRAMS: dict[str, Callable[[], None]] = {}


def program(function: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[function.__name__] = function
    return function


def encoder(width: int = 512, layers: int = 4, heads: int = 8) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()


@program
def mlp_adam() -> None:
    """Plain training."""
    net = nn.Sequential(
        *[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8)], nn.Linear(1024, 10)
    ).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(5):
        loss = net(torch.randn(2048, 1024, device="cuda")).logsumexp(1).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def growing_batches() -> None:
    """Batches of growing length, as a tokenizer without padding makes them: fragmentation."""
    net, head = encoder(), nn.Linear(512, 8000).cuda()
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()])
    for length in (155, 161, 178, 145, 200, 217, 148, 233, 245, 175, 256, 265, 286, 159, 300, 316, 328, 345):
        out = head(net(torch.randn(16, length, 512, device="cuda"))).flatten(0, 1)
        nn.functional.cross_entropy(out, torch.randint(0, 8000, (16 * length,), device="cuda")).backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def losses_kept() -> None:
    """The losses are summed with their graphs: every batch holds more."""
    net = nn.Sequential(
        *[nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(4)], nn.Linear(512, 10)
    ).cuda()
    total = torch.zeros((), device="cuda")
    for _ in range(24):
        total = total + nn.functional.cross_entropy(
            net(torch.randn(1024, 512, device="cuda")), torch.zeros(1024, dtype=torch.long, device="cuda")
        )


@program
def convolutions() -> None:
    """A small convolutional network, channels and sizes as they come."""
    layers: list[nn.Module] = []
    channels = 3
    for wider in (32, 48, 96, 160):
        layers += [nn.Conv2d(channels, wider, 3, 2, 1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
        channels = wider
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 100)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for size in (160, 192, 224, 192, 256):
        net(torch.randn(32, 3, size, size, device="cuda")).logsumexp(1).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def autocast() -> None:
    """Mixed precision with a scaler."""
    net = encoder(384, 4, 6)
    optimizer, scaler = torch.optim.AdamW(net.parameters()), torch.amp.GradScaler("cuda")
    for _ in range(4):
        with torch.autocast("cuda", torch.float16):
            loss = net(torch.randn(24, 197, 384, device="cuda")).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@program
def streams() -> None:
    """Copies on a second stream, which the first waits for; record_stream keeps blocks back."""
    side, kept = torch.cuda.Stream(), []
    net = nn.Linear(2048, 2048).cuda()
    for step in range(12):
        with torch.cuda.stream(side):
            batch = torch.randn(512 + 64 * (step % 3), 2048, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        batch.record_stream(torch.cuda.current_stream())
        with torch.no_grad():
            kept.append(net(batch).mean(1))
        del batch
    torch.cuda.synchronize()


@program
def graphs() -> None:
    """Two CUDA graphs, each with a private pool."""
    net = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
    held = []
    for rows in (256, 512):
        x = torch.randn(rows, 1024, device="cuda")
        with torch.no_grad():
            net(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = net(x)
        held.append((graph, x, y))
    for graph, _, _ in held:
        graph.replay()
    with torch.no_grad():
        net(torch.randn(700, 1024, device="cuda"))


@program
def generation() -> None:
    """A cache of keys and values that grows by concatenation."""
    keys = [torch.zeros(4, 8, 64, 64, device="cuda") for _ in range(6)]
    for _ in range(48):
        keys = [torch.cat([key, torch.zeros(4, 8, 1, 64, device="cuda")], 2) for key in keys]
        scores = [key @ key.transpose(2, 3) for key in keys]
        del scores


@program
def emptied() -> None:
    """`empty_cache` between training and evaluation."""
    net = encoder(256, 3, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for length in (128, 256, 192):
        net(torch.randn(16, length, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.empty_cache()
        with torch.no_grad():
            net(torch.randn(64, length, 256, device="cuda"))
        torch.cuda.empty_cache()


@program
def sizes() -> None:
    """Requests of all sizes, in an order that a linear congruence draws; freed in another."""
    held: dict[int, torch.Tensor] = {}
    state = 12345
    for step in range(1500):
        state = (state * 1103515245 + 12345) % 2**31
        if len(held) > 60:
            del held[sorted(held)[state // 7 % len(held)]]
        nbytes = 2 ** (9 + state // 64 % 16) + state // 1024 % 100_000
        held[step] = torch.empty(nbytes, dtype=torch.uint8, device="cuda")


@program
def tight() -> None:
    """The sizes of `growing_batches` where the fraction leaves too little room: cached blocks are given back, again and again."""
    held: list[torch.Tensor] = []
    for step in range(160):
        held.append(torch.empty((11 + 7 * (step % 13)) * 2**20, dtype=torch.uint8, device="cuda"))
        if len(held) > 10:
            del held[(step * 5) % 9]


@program
def ends_fragmented() -> None:
    """Runs out of memory although enough is free: in pieces."""
    blocks = [torch.empty((25 + step) * 2**20, dtype=torch.uint8, device="cuda") for step in range(40)]
    pieces = []
    for step in range(0, 40, 2):
        pieces.append(blocks[step][: 2**20].clone())
        blocks[step] = torch.empty(0, device="cuda")
        pieces.append(torch.empty(13 * 2**20, dtype=torch.uint8, device="cuda"))
    with contextlib.suppress(torch.OutOfMemoryError):
        blocks.append(torch.empty(360 * 2**20, dtype=torch.uint8, device="cuda"))


@program
def ends_training() -> None:
    """The first optimizer step finds no room."""
    net = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(10)]).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    with contextlib.suppress(torch.OutOfMemoryError):
        for _ in range(3):
            net(torch.randn(4096, 2048, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()


@program
def ends_growing() -> None:
    """Outputs are kept batch by batch until the card is full."""
    net, outputs = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4096)).cuda(), []
    with contextlib.suppress(torch.OutOfMemoryError):
        for _ in range(400):
            outputs.append(net(torch.randn(512, 1024, device="cuda")))


@program
def checkpointed() -> None:
    """Blocks are computed again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    blocks = nn.ModuleList(
        nn.Sequential(nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768)) for _ in range(6)
    ).cuda()
    optimizer = torch.optim.AdamW(blocks.parameters(), fused=True)
    for _ in range(4):
        x = torch.randn(4096, 768, device="cuda", requires_grad=True)
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def two_models() -> None:
    """A teacher and a student, and an exponential average of the student."""
    teacher, student = encoder(512, 3), encoder(256, 3, 4)
    into = nn.Linear(512, 256).cuda()
    average = torch.optim.swa_utils.AveragedModel(student)
    optimizer = torch.optim.AdamW([*student.parameters(), *into.parameters()])
    for _ in range(4):
        x = torch.randn(16, 200, 512, device="cuda")
        with torch.no_grad():
            target = into(teacher(x))
        (student(into(x)) - target).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        average.update_parameters(student)


@program
def gpt2() -> None:
    """transformers' GPT-2, small, trained at three lengths."""
    from transformers import GPT2Config, GPT2LMHeadModel

    net = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=384, n_head=6)).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for length in (128, 256, 200, 300):
        ids = torch.randint(0, 50257, (4, length), device="cuda")
        net(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def resnet() -> None:
    """torchvision's ResNet-18, trained and evaluated."""
    from torchvision.models import resnet18

    net = resnet18().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        net(torch.randn(32, 3, 224, 224, device="cuda")).logsumexp(1).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    net.eval()
    with torch.no_grad():
        net(torch.randn(128, 3, 224, 224, device="cuda"))
