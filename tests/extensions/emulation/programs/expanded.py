"""Gradients of which one number stands for all (a sum's, a mean's), for one row or for one column, and such that are transposed, in every
operator whose kernel or library reads its operand's elements in order."""

import warnings

import torch
import torch.nn.functional as F

warnings.simplefilter("ignore")
SIZE, ENTRIES = 512, 4000


def drawn(*shape: int) -> torch.Tensor:
    return torch.rand(shape, device="cuda", requires_grad=True)


def module(made: torch.nn.Module) -> torch.nn.Module:
    return made.cuda()


numbers = torch.arange(ENTRIES)
places = torch.stack([numbers * 7 % SIZE, numbers * 13 // 8 % SIZE]).cuda()
entries = torch.sparse_coo_tensor(places, torch.ones(ENTRIES, device="cuda"), (SIZE, SIZE)).coalesce()
rows = entries.to_sparse_csr()
labels = torch.arange(400).cuda() % 500
calls = [
    lambda: torch.sparse.mm(entries, drawn(SIZE, 300)),
    lambda: torch.sparse.mm(entries, drawn(300, SIZE).t()),
    lambda: torch.sparse.mm(entries, drawn(SIZE, 600)[:, :300]),
    lambda: torch.sparse.addmm(drawn(SIZE, 300), entries, drawn(SIZE, 300)),
    lambda: rows @ drawn(SIZE, 300),
    lambda: rows @ drawn(SIZE),
    lambda: drawn(300, 400) @ drawn(400, 500),
    lambda: drawn(8, 30, 40) @ drawn(8, 40, 50),
    lambda: drawn(700, 400) @ drawn(400),
    lambda: torch.addmv(drawn(700), drawn(700, 400), drawn(400)),
    lambda: torch.addr(drawn(700, 400), drawn(700), drawn(400)),
    lambda: F.bilinear(drawn(60, 70), drawn(60, 50), drawn(30, 70, 50)),
    lambda: module(torch.nn.Conv2d(16, 32, 3))(drawn(4, 16, 30, 30)),
    lambda: module(torch.nn.BatchNorm2d(16))(drawn(4, 16, 30, 30)),
    lambda: module(torch.nn.GroupNorm(4, 16))(drawn(4, 16, 30, 30)),
    lambda: module(torch.nn.LayerNorm(300))(drawn(8, 70, 300)),
    lambda: drawn(400, 500).log_softmax(-1),
    lambda: F.max_pool2d(drawn(4, 16, 30, 30), 2),
    lambda: F.adaptive_avg_pool2d(drawn(4, 16, 30, 30), 7),
    lambda: F.interpolate(drawn(4, 16, 30, 30), scale_factor=2, mode="bicubic"),
    lambda: F.grid_sample(drawn(4, 16, 30, 30), drawn(4, 20, 20, 2), align_corners=False),
    lambda: F.pad(drawn(4, 16, 30, 30), (1, 2, 3, 4), mode="reflect"),
    lambda: F.embedding(labels, drawn(1000, 300)),
    lambda: drawn(400, 500).scatter_reduce(1, labels[:, None] % 7, drawn(400, 60), "amax"),
    lambda: drawn(400, 500)[labels % 60, labels % 9],
    lambda: module(torch.nn.GRU(64, 96))(drawn(70, 3, 64))[0],
    lambda: F.scaled_dot_product_attention(drawn(2, 4, 64, 64), drawn(2, 4, 64, 64), drawn(2, 4, 64, 64)),
    lambda: drawn(400, 500).cumprod(1),
    lambda: drawn(400, 500).sort(1)[0],
    lambda: torch.cdist(drawn(3, 100, 50), drawn(3, 120, 50)),
    lambda: torch.fft.rfft(drawn(40, 500)).real,
    lambda: torch.linalg.solve(drawn(60, 60), drawn(60, 20)),
    lambda: F.nll_loss(drawn(400, 500), labels, reduction="none"),
    lambda: F.cross_entropy(drawn(400, 500), labels, reduction="none"),
    lambda: F.huber_loss(drawn(400, 500), drawn(400, 500), reduction="none"),
]
for call in calls:
    call().sum().backward()
    call().mean().backward()
    out = call()
    out.backward(drawn(*out.shape[:-1], 1).detach().expand(out.shape))
    out = call()
    out.backward(drawn(1, *out.shape[1:]).detach().expand(out.shape))
    if (out := call()).dim() > 1:
        out.backward(drawn(*reversed(out.shape)).detach().permute(*reversed(range(out.dim()))))
    del out
