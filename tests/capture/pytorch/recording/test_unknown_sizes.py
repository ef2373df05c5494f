"""Sizes that depend on data, and values the user says: the bound, the note with its line, and `assume`."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import analyzer  # noqa: E402
from analyzer import Estimate, OptionError  # noqa: E402
from analyzer.values.assumptions import Assumptions  # noqa: E402
from analyzer.values.counts import _seen_at_most  # noqa: E402

MIB = 1 << 20


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Estimate]:
    """Runs a program given as text; its file is called program.py."""

    def run(text: str, **options: Any) -> Estimate:
        script = tmp_path / "program.py"
        script.write_text("import torch\n" + text)
        return analyzer.run(script, device="h200", **options)

    return run


@pytest.mark.parametrize(
    ("call", "nbytes"),
    [
        ("torch.nonzero(x)", 1 << 21),  # two indices of 8 bytes for each of 2^18 elements: 4 MiB
        ("x[x > 0]", 1 << 20),
        ("torch.masked_select(x, x > 0)", 1 << 20),
        ("torch.unique(x)", 1 << 20),
    ],
)
def test_what_data_decides_is_as_large_as_it_can_be(run: Any, call: str, nbytes: int) -> None:
    """512 x 512 random floats: results of at most one for each of them, 4 bytes (indices: 2 x 8)."""
    estimate = run(f"x = torch.rand(512, 512, device='cuda')\nkept = {call}\n")
    wanted = 4 * MIB if "nonzero" in call else nbytes
    assert any(
        n.startswith("program.py:3: how many results") and "--assume program.py:3=COUNT" in n
        for n in estimate.notes
    )
    born = [t for t in estimate.top(20) if t.nbytes == wanted]
    assert born, [t.nbytes for t in estimate.top(20)]


def test_a_size_that_is_said(run: Any) -> None:
    text = "x = torch.rand(1 << 20, device='cuda')\nkept = x[x > 0]\nassert kept.shape == (512,)\ndel x\n"
    estimate = run(text, assume={"program.py:3": 512})
    assert "program.py:3: 512 is assumed, as given" in estimate.notes
    assert not any("how many results" in note for note in estimate.notes)


def test_a_value_that_is_said(run: Any) -> None:
    text = """
x = torch.rand(4, device='cuda')
rows = int(x.argmax().item())
assert rows == 7
if x.sum() > 3:
    kept = torch.zeros(1 << 20, device='cuda')
assert x.tolist() == [0.5] * 4
"""
    said = {"program.py:4": 7, "program.py:6": "true", "program.py:8": "0.5"}
    assert run(text, assume=said).peak_allocated >= 4 * MIB


def test_an_assumption_nobody_asks_for_is_noted(run: Any) -> None:
    notes = run("x = 1\n", assume={"program.py:99": 1}).notes
    assert "nothing was read at program.py:99: the assumption for it had no effect" in notes


def test_a_size_that_nothing_bounds_asks_for_one(run: Any) -> None:
    text = "n = torch.randint(3, (4,), device='cuda')\nr = torch.repeat_interleave(n)\n"
    assert any("--assume program.py:3=VALUE" in note for note in run(text).notes)


@pytest.mark.parametrize("said", [{"program": 1}, {"program.py": 1}, {"program.py:1": "many"}])
def test_assumptions_that_make_no_sense(run: Any, said: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        run("", assume=said)


def test_places_are_ends_of_paths() -> None:
    assumptions = Assumptions({"models/net.py:3": 2.5})
    assert assumptions.at("/home/a/models/net.py", 3) == 2.5
    assert (
        assumptions.at("/home/a/other/net.py", 3) is None
        and assumptions.at("/home/a/models/net.py", 4) is None
    )


def test_finite_numbers_are_what_a_healthy_run_has(run: Any) -> None:
    text = """
loss = torch.rand((), device='cuda')
assert torch.isfinite(loss) and not torch.isnan(loss).any()
assert torch.isfinite(torch.rand(8, device='cuda')).all() and not torch.rand(8, device='cuda').isinf().any()
"""
    assert any("finite" in note for note in run(text).notes)


def test_what_was_copied_from_the_host_is_counted_there(run: Any) -> None:
    """A matrix of which 5 numbers are not zero; once an unknown one is written to it, only the bound is known."""
    text = """
import numpy
adjacency = torch.from_numpy(numpy.eye(2100, dtype="float32") * (numpy.arange(2100) < 5))
there = adjacency.cuda()
assert there.nonzero().shape == (5, 2)
there[0, 1] = 2.0
{}
"""
    assert run(text.format("")).peak_allocated < 60 * MIB
    assert run(text.format("assert there.nonzero().shape == (6, 2)")).incomplete is None
    drawn = "there[0, 1] = torch.randn((), device='cuda')\nthere.nonzero()"
    assert run(text.format(drawn)).peak_allocated >= 2100 * 2100 * 16
    other = "other = adjacency.cuda()\nadjacency[1, 0] = 1\nassert other.nonzero().shape == (5, 2)"
    assert run(text.format(other)).incomplete is None


def test_the_largest_nodes_of_a_graph_are_as_many_as_said(run: Any) -> None:
    """How top-k pooling picks 20 of 50 nodes: by the graph each belongs to, which is zero for all, wherever it is looked up,
    and by sums into the middle of a tensor left empty."""
    estimate = run(
        """
x = torch.randn(50, device="cuda")
like = torch.randint(0, 50, (2, 90), device="cuda")
graph = like.new_zeros(50)
sizes = torch.zeros(1, dtype=torch.long, device="cuda").scatter_add_(0, graph, graph.new_ones(50))
order = torch.sort(x, descending=True)[1]
graph = graph[order]
begins = sizes.new_empty(2)
begins[:1] = 0
torch.cumsum(sizes, 0, out=begins[1:])
mask = torch.arange(50, device="cuda") - begins[graph] < 20
assert order[mask].shape == (20,), order[mask].shape
"""
    )
    assert not estimate.incomplete
    assert not any("depends on data" in note for note in estimate.notes)


@pytest.mark.parametrize(
    ("compared", "share"),
    [(">= 0.25", 0.75), ("> 0.25", 0.75), ("< 0.25", 0.25), ("<= 0.25", 0.25), (">= 0.0", 1.0)],
)
def test_of_numbers_that_are_drawn_few_more_pass_than_their_share(
    compared: str, share: float, run: Any
) -> None:
    """100,000 of them: no more than the binomial distribution has but in one of 10^8 cases, and at most 1 % over the share."""
    estimate = run(
        f"""
x = torch.rand(100_000, device="cuda")
mask = x {compared}
sizes = {{len(x[mask]), len(mask.nonzero()), len(torch.masked_select(x, mask))}}
assert len(sizes) == 1, sizes
size = sizes.pop()
assert {share} * 100_000 <= size <= min(100_000, {share} * 100_000 + 1000), size
mask[3] = True
assert len(x[mask]) == 100_000
"""
    )
    assert estimate.incomplete is None, estimate.incomplete
    assert any("counted at its bound" in note for note in estimate.notes)


def test_an_order_has_every_place_once(run: Any) -> None:
    """As rankings are evaluated: where is the right answer among all that were scored?"""
    estimate = run(
        """
scores = torch.rand(8, 50_000, device="cuda").log()
order, right = torch.argsort(scores, dim=1, descending=True), torch.arange(8, device="cuda")
for i in range(8):
    assert (order[i, :] == right[i]).nonzero().shape == (1, 1)
assert (order == 3).nonzero().shape == (8, 2)
assert (torch.sort(scores[0]).indices == 3).nonzero().shape == (1, 1)
assert (order[:, :100] == 3).nonzero().shape == (800, 2), "a part of an order may lack it, and no part is told apart"
assert (torch.argsort(scores, dim=0) == 3).nonzero().shape == (400_000, 2)
"""
    )
    assert estimate.incomplete is None, estimate.incomplete


def test_a_list_of_places_has_every_place_once(run: Any) -> None:
    """As masks are encoded by the lengths of their runs: where all of them change is listed, and taken apart mask by mask. A mask has no
    more changes than elements between which it may change, though nobody knows how many there are."""
    estimate = run(
        """
masks = torch.randn(64, 5000, device="cuda").log() > 0
at = (masks[:, 1:] ^ masks[:, :-1]).nonzero()
assert at.shape == (64 * 4999, 2)
assert [len(at[at[:, 0] == mask, 1]) for mask in (0, 1, 63)] == [4999, 4999, 4999]
assert len(at[at[:, 1] == torch.tensor(7, device="cuda")]) == 64, "one of each mask"
assert len(at[1:][at[1:, 1] == 7]) == 64 * 4999 - 1, "a part of a column is not told apart"
at[:, 0] += 1
assert len(at[at[:, 0] == 1]) == 64 * 4999, "these are others"
rows, columns = torch.where(masks)
assert len(columns[rows == 3]) == 5000
"""
    )
    assert estimate.incomplete is None, estimate.incomplete


def test_a_mask_counted_on_the_device_is_as_long_on_the_host(run: Any) -> None:
    """As a list of boxes is filtered whose masks lie on the device and whose points lie on the host.
    A mask nobody counted is false on the host, and so is one that was written to after it was counted."""
    estimate = run(
        """
scores, points = torch.randn(192, device="cuda"), torch.arange(192)
kept = scores.log() > 0
assert len(scores[kept]) == len(points[kept.cpu()]) == len(points[torch.as_tensor(kept, device="cpu")]) == 192
said = scores.log() < 1
assert len(scores[said]) == 7  # --assume
assert int(said.cpu().sum()) == 7
other = scores.log() > 1
assert not other.cpu().any()
kept |= other
assert not kept.cpu().any(), "another mask than was counted"
""",
        assume={"program.py:7": 7},
    )
    assert estimate.incomplete is None, estimate.incomplete


def test_what_is_sampled_is_no_more_than_was_written(run: Any) -> None:
    """How detectors choose the boxes they learn from: at most so many of each kind, marked in masks of zeros."""
    estimate = run(
        """
matched = torch.randint(-1, 3, (2000,), device="cuda")
positive, negative = torch.where(matched >= 1)[0], torch.where(matched == 0)[0]
masks = []
for kind, most in ((positive, 128), (negative, 384)):
    chosen = kind[torch.randperm(kind.numel(), device="cuda")[:most]]
    mask = torch.zeros_like(matched, dtype=torch.uint8)
    mask[chosen] = 1
    masks.append(mask)
assert torch.where(masks[0] | masks[1])[0].shape == (512,)
assert torch.where(torch.cat(masks))[0].shape == (512,)
assert torch.zeros_like(matched, device="cpu").sum() == matched.new_zeros(4, device="cpu").sum() == 0
masks[0].copy_(matched)
assert torch.where(masks[0])[0].shape == (2000,), "written to by something nobody knows"
"""
    )
    assert estimate.incomplete is None, estimate.incomplete
    assert any("depends on data" in note for note in estimate.notes)


def test_what_equals_several_numbers_is_no_more_than_there_is(run: Any) -> None:
    """How boxes are pooled from the levels of a pyramid: each belongs to one. The first has all, and each other one of them, so that
    what is done with it is done."""
    estimate = run(
        """
level = torch.randint(0, 3, (500,), device="cuda")
boxes = torch.randn(500, 64, device="cuda")
assert [torch.where(level == number)[0].numel() for number in (0, 1, 2)] == [500, 1, 1]
assert [len(boxes[level == number]) for number in (2, 0, 1)] == [1, 500, 1]
level += 1
assert len(boxes[level == 1]) == 500, "these are others"
"""
    )
    assert estimate.incomplete is None, estimate.incomplete


def test_experts_that_tokens_choose_are_met(run: Any) -> None:
    """Two of four experts a token: no token has one twice, so the first two have all tokens and the others one of them. Of a
    vocabulary that is larger than what is chosen from it nothing is said."""
    estimate = run(
        """
hidden = torch.randn(64, 16, device="cuda")
weight, chosen = torch.topk(torch.randn(64, 4, device="cuda"), 2)
met = []
for expert in range(4):
    mask = chosen == expert
    if mask.any():
        tokens = mask.any(dim=-1).nonzero().flatten()
        met.append((len(tokens), len(weight[mask])))
assert met == [(64, 64), (64, 64), (1, 1), (1, 1)], met
likely = torch.topk(torch.randn(4, 1000, device="cuda"), 1)[1]
assert not (likely == 2).any()
assert not (chosen == 4).any(), "there is none"
one = torch.topk(hidden[0, 0], 1)[1]
assert not (one == 3).any()
"""
    )
    assert estimate.incomplete is None, estimate.incomplete
    assert any("mixture's experts" in note for note in estimate.notes)


def test_how_many_are_seen_at_most() -> None:
    """The exact distribution's share of more than the bound, summed here, is below e^-20; and what is sure stays sure."""
    for count, share in ((1, 0.5), (40, 0.1), (500, 0.8), (3000, 0.5)):
        most = _seen_at_most(count, share)
        above = sum(
            math.exp(
                math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
                + k * math.log(share) + (count - k) * math.log(1 - share)
            )
            for k in range(most + 1, count + 1)
        )  # fmt: skip
        assert above < math.exp(-20) and most <= count
    assert _seen_at_most(10_000, 1.0) == 10_000 and _seen_at_most(10_000, 0.0) < 20
    assert _seen_at_most(100_000, 0.75) < 100_000 * 0.76


@pytest.mark.parametrize(
    "made",
    [
        "d = torch.rand(n, n, device=dev); d[d < 0.9] = 0",
        "d = torch.rand(n, n, device=dev); d = d.masked_fill(d < 0.7, 0)",
        "d = torch.randn(n, n, device=dev) * (torch.rand(n, n, device=dev) > 0.9)",
        "d = torch.randn(n, n, device=dev); d = torch.where(d > 1.0, d, 0)",
        "d = torch.randn(n, n, device=dev); d = torch.where(d < 1.0, 0, d)",
        "d = torch.randn(n, n, device=dev).relu()",
        "d = torch.nn.functional.dropout(torch.randn(n, n, device=dev), 0.9)",
        "d = torch.randn(n, n, device=dev) * torch.empty(n, n, device=dev).bernoulli_(0.2)",
    ],
)
def test_zeros_written_by_chance_bound_what_is_left(run: Any, capsys: Any, made: str) -> None:
    """As many entries as a CPU finds of the same draws, and at most 2 % more: in each layout, of a matrix of 4 million."""
    text = f"n, dev = 2048, 'cuda'\n{made}\n"
    kept = "print('left', d.to_sparse_csr().values().numel(), d.to_sparse_csc().values().numel(), len(d.nonzero()))\n"
    estimate = run(text + kept)
    assert not estimate.incomplete, estimate.incomplete
    found = [
        int(word)
        for line in capsys.readouterr().out.splitlines()
        if "left" in line
        for word in line.split()[1:]
    ]
    names: dict[str, Any] = {"torch": torch}
    exec(text.replace("'cuda'", "'cpu'"), names)
    real = int(names["d"].count_nonzero())
    assert len(found) == 3 and all(0.99 * real < each < 1.02 * real for each in found), (found, real)
    assert any("depends on data" in note for note in estimate.notes)


@pytest.mark.parametrize("call", ["torch.unique(y)", "torch.bincount(y)", "torch.unique(y.long())"])
def test_integers_drawn_from_a_range_have_no_more_values_than_it(run: Any, call: str) -> None:
    """A check of labels counts them (`len(torch.unique(labels)) > classes`): 100 at most, not as many as labels."""
    estimate = run(
        f"y = torch.randint(0, 100, (1 << 18,), dtype=torch.int32, device='cuda')\nkept = {call}\n"
        "assert len(kept) == 100, kept.shape\n"
    )
    assert estimate.incomplete is None
    assert any("depends on data" in note for note in estimate.notes)


def test_labels_that_are_written_to_have_no_range(run: Any) -> None:
    text = (
        "y = torch.randint(0, 100, (4096,), device='cuda')\ny.mul_(torch.randint(0, 9, (4096,), device='cuda'))\n"
        "assert len(torch.unique(y)) == 4096\n"
    )
    assert run(text).incomplete is None
