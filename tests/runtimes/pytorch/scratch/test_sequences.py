"""Rules generated from histories: what their steps mean, and that they name tensors of the operators' schemas."""

from __future__ import annotations

import json
import re

from analyzer.runtimes.pytorch.scratch.script import rule_for
from analyzer.runtimes.pytorch.scratch.sequences import PATH, recorded_sequence, table
from benchmarks.releases.schemas import recorded
from tests.runtimes.pytorch.scratch.handwritten import call, spread, tensor, words

SCHEMAS = recorded()


def test_copies_results_and_temporaries_in_their_order() -> None:
    """Weights of 8 bits: the product's factors as 32 bits, and of its result; what lies otherwise is copied."""
    x, weight, scales = (
        tensor(16, 64, dtype="bfloat16"),
        tensor(48, 64, dtype="int8"),
        tensor(48, dtype="bfloat16"),
    )
    result = tensor(16, 48, dtype="bfloat16")
    name = "aten::_weight_int8pack_mm"
    assert table()[name] == "self:4 mat2? scales:4 o0:4 o"
    sizes = (16 * 64 * 4, 48 * 4, 16 * 48 * 4)
    taken, back = " ".join(f"+{n}" for n in sizes), " ".join(f"-{n}" for n in reversed(sizes))
    assert words(call(name, (x, weight, scales), (result,))) == f"{taken} =0 {back}"
    copied = words(call(name, (x, spread(weight), scales), (result,)))
    assert copied.split()[1] == f"+{48 * 64}"
    assert words(call("aten::cudnn_grid_sampler", (x, spread(tensor(2, 3, 4))), (result,))) == "+96 =0 -96"


def test_what_is_given_back_early_and_constants() -> None:
    x, scale = tensor(4, 6), tensor(6)
    steps = words(
        call("aten::fake_quantize_per_channel_affine_cachemask", (x, scale, scale, 1, 0, 255), (x, x))
    )
    assert steps == "+4 +4 -4 -4 =0 =1"
    strided = words(
        call("aten::fake_quantize_per_channel_affine_cachemask", (x, scale, spread(scale), 1, 0, 255), (x, x))
    )
    assert strided == "+4 +24 -24 +4 +24 -24 -4 -4 =0 =1"


def test_results_before_their_turn_and_copies_of_results() -> None:
    assert words(call("aten::native_dropout", (tensor(4, 6), 0.5, True), (tensor(4, 6),) * 2)) == "=1 =0"
    image, last = tensor(2, 3, 4, 5), spread(tensor(2, 3, 8, 10))
    resized = call("aten::_upsample_bilinear2d_aa", (spread(image), (8, 10), False), (last,))
    assert words(resized) == "=0 +1920 +480 -480 -1920"


def test_steps_name_tensors_of_the_release_that_was_asked() -> None:
    for release, kernels in json.loads(PATH.read_text("utf-8")).items():
        schemas = SCHEMAS[tuple(map(int, release.split(".")))]
        for kernel, steps in kernels.items():
            named = set(re.findall(r"(?:^| |\*)([a-z]\w*)", steps)) - {"o", "o0", "o1", "cublas"}
            assert named <= set(schemas[kernel if "." in kernel else f"{kernel}.default"]), kernel
            found = rule_for(kernel)
            assert found is not None and found.code is recorded_sequence, kernel
