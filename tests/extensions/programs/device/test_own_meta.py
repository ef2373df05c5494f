"""Meta tensors that a program makes itself, modules that do something when asked for their parameters, and copies of buffers that are
given other data."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import analyzer
from analyzer import Estimate


def run(folder: Path, text: str, **options: object) -> Estimate:
    script = folder / "program.py"
    script.write_text("import copy\nimport torch\n" + text)
    return analyzer.run(script, device="h200", **options)


PRODUCT = """
a = torch.ones(2, 3, 4, dtype=torch.bfloat16, device="meta")
b = torch.ones(2, 4, 5, device="meta")
real = torch.zeros(4, device="cuda")
try:
    product = torch.bmm(a, b)
    sizes = tuple(product.shape), product.dtype, product.device.type, torch.einsum("bij,bjk->bik", a, b).dtype
except RuntimeError:
    sizes = None
assert sizes == {wanted}, sizes
assert torch.cuda.memory_allocated() == 512
"""


@pytest.mark.parametrize(
    ("release", "wanted"),
    [("2.11", "((2, 3, 5), torch.float32, 'meta', torch.float32)"), ("2.13", "None")],
)
def test_a_product_of_meta_tensors_is_that_of_the_release(tmp_path: Path, release: str, wanted: str) -> None:
    """torch 2.11 on a machine without a GPU gives a float32 of 2 x 3 x 5; 2.13 refuses."""
    estimate = run(tmp_path, PRODUCT.format(wanted=wanted), release={"torch": release})
    assert estimate.incomplete is None


ASKED = """
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.asked = 0

    def named_parameters(self, *args, **kwargs):
        self.asked += 1
        return super().named_parameters(*args, **kwargs)

    def forward(self, x):
        return x * 2

layer = Layer()
layer(torch.ones(4, device="cuda"))
assert layer.asked == 0, layer.asked
"""


def test_a_module_is_not_asked_for_its_parameters_by_a_method_of_its_own(tmp_path: Path) -> None:
    """Keras makes parameters there, too early when its layer is not built."""
    assert run(tmp_path, ASKED).incomplete is None


BUFFERS = """
model = torch.nn.BatchNorm1d(1 << 20).cuda()
before = torch.cuda.memory_allocated()
average = copy.deepcopy(model)
copied = torch.cuda.memory_allocated() - before
for ours, theirs in zip(average.buffers(), model.buffers()):
    ours.data = theirs.data
assert (copied, torch.cuda.memory_allocated() - before) == ((16 << 20) + 512, 8 << 20)
"""


def test_a_deep_copy_that_is_given_other_data_keeps_nothing(tmp_path: Path) -> None:
    """An average of a model shares its buffers: of two weights and two buffers of 4 MiB, and a count of 512 bytes, the weights stay."""
    assert run(tmp_path, BUFFERS).incomplete is None
