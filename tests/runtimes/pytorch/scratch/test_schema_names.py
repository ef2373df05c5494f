"""The names by which rules read arguments are those of the operators' schemas, in every release of torch that is modelled.

A rule that asks for a name the schema has not is told that the argument is absent: silently less memory. So the names are
taken out of the rules' code, and looked up in the schemas recorded of each release (`benchmarks/releases/schemas.py`).
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from analyzer.releases import MODELLED
from analyzer.runtimes.pytorch.scratch import OF_OPERATOR
from analyzer.runtimes.pytorch.scratch.script import ScratchRule
from benchmarks.releases.schemas import Names, recorded

OF_A_TENSOR = (
    "present",
    "filled",
    "typed",
    "solvable",
)  # functions told an operator, and the names of one of its tensors
ACCESSORS = ("argument", "tensor", "integer", "integers", "flags")
RELEASES = recorded()
# Names that a rule of several operators reads of those that have them, by operator.
OTHERS_HAVE = {
    "aten::_batch_norm_with_update": {"training"},
    "aten::_chunk_cat": {"out"},
    "aten::_efficient_attention_backward": {"grad_input_mask"},
    "aten::_fake_quantize_learnable_per_tensor_affine_backward": {"axis"},
    "aten::_fft_c2c": {"onesided", "last_dim_size"},
    "aten::_fft_c2r": {"onesided"},
    "aten::_fft_r2c": {"last_dim_size"},
    "aten::_fused_rms_norm_backward": {"bias"},
    "aten::_is_all_true": {"dim", "keepdim"},
    "aten::_is_any_true": {"dim", "keepdim"},
    "aten::_linalg_solve_ex": {"adjoint"},
    "aten::_scaled_dot_product_efficient_attention_backward": {
        "bias_requires_grad", "cu_seqlens_q", "max_seqlen_q", "max_seqlen_k", "num_splits_key",
    },
    "aten::_segment_reduce_backward": {"unsafe"},
    "aten::segment_reduce": {"grad", "output"},
    "aten::_unique": {"return_counts"},
    "aten::_unsafe_index_put": {"unsafe"},
    "aten::avg_pool2d_backward": {"indices"},
    "aten::cholesky_inverse": {"A"},
    "aten::index_put": {"unsafe"},
    "aten::index_put_": {"unsafe"},
    "aten::linalg_inv_ex": {"pivots", "left", "adjoint"},
    "aten::linalg_qr": {"tau"},
    "aten::norm.Scalar": {"dim", "keepdim"},
    "aten::split_with_sizes_copy": {"out"},
}  # fmt: skip
# Kernels of sparse tensors are recorded with the parts they work on (`capture/pytorch/kernels/sparse.py`), not with the schema's arguments.
OF_PARTS = {
    "aten::_coalesce", "aten::_sparse_mm", "aten::_sparse_addmm", "aten::_sparse_sparse_matmul", "aten::_sparse_softmax",
    "aten::_sparse_log_softmax",
}  # fmt: skip


@functools.cache
def read_by(function: Callable[..., Any]) -> frozenset[tuple[str, ...]]:
    """What a rule asks its operator for, in itself and in the functions it hands the operator: one or more names each."""
    code = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    words: dict[str, set[str]] = {}
    for variable, names in constants(code):
        words.setdefault(variable, set()).update(names)
    found: set[tuple[str, ...]] = set()
    for call in ast.walk(code):
        if not isinstance(call, ast.Call):
            continue
        match call.func:
            case ast.Attribute(ast.Name("operator"), accessor) if accessor in ACCESSORS:
                given = call.args[:1] if accessor == "flags" else call.args
                if isinstance(given[0], ast.Name):  # of a loop over names
                    found |= {(name,) for name in words[given[0].id]}
                else:
                    found.add(tuple(ast.literal_eval(name) for name in given))
            case ast.Name(helper) if helper in OF_A_TENSOR:
                names = tuple(
                    a.value for a in call.args[1:] if isinstance(a, ast.Constant) and isinstance(a.value, str)
                )
                found |= {names} if names else set()
            case ast.Name(helper) if any(isinstance(a, ast.Name) and a.id == "operator" for a in call.args):
                told = inspect.unwrap(function).__globals__.get(helper)
                if inspect.isfunction(told):
                    found |= read_by(told)
    return frozenset(found)


def constants(code: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Variables that run through names written down as a tuple, and these names."""
    tuples = {
        node.targets[0].id: node.value
        for node in ast.walk(code)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(code):
        if isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name):
            over = tuples.get(node.iter.id) if isinstance(node.iter, ast.Name) else node.iter
            if isinstance(over, ast.Tuple) and all(isinstance(each, ast.Constant) for each in over.elts):
                yield node.target.id, ast.literal_eval(over)


def absent(operator: str, rule: ScratchRule, names: Names) -> set[tuple[str, str]]:
    """What the rule reads of an operator that exists, and none of its overloads has."""
    overloads = [
        arguments
        for overload, arguments in names.items()
        if overload == operator or overload.rpartition(".")[0] == operator
    ]
    return {
        (operator, " ".join(wanted))
        for wanted in read_by(rule.code)
        if overloads and not any(name in arguments for arguments in overloads for name in wanted)
    }


def rules() -> Iterator[tuple[str, ScratchRule]]:
    for operator, rule in OF_OPERATOR.items():
        if operator not in OF_PARTS and rule.code.__module__.startswith("analyzer."):
            yield operator, rule


def test_names_are_found_in_the_rules_code() -> None:
    def code(operator: str) -> Callable[..., Any]:
        return OF_OPERATOR[operator].code

    assert read_by(code("aten::embedding")) == {("indices",)}
    assert {("batch1", "self"), ("batch2", "mat2")} == read_by(code("aten::bmm"))
    assert {("grad_hy",), ("cx",), ("batch_sizes",)} < read_by(code("aten::_cudnn_rnn_backward"))
    assert ("output_mask",) in read_by(code("aten::native_layer_norm_backward"))
    assert absent("aten::bmm", OF_OPERATOR["aten::bmm"], {"aten::bmm.default": ["self", "other"]}) == {
        ("aten::bmm", "batch2 mat2")
    }


def test_every_modelled_release_is_recorded() -> None:
    span = MODELLED["torch"]
    assert span.since == min(RELEASES) and span.until == max(RELEASES)
    assert [minor for _, minor in sorted(RELEASES)] == list(range(6, 6 + len(RELEASES)))


def test_the_record_says_what_the_installed_torch_says() -> None:
    major, minor = torch.__version__.split(".")[:2]
    names = RELEASES.get((int(major), int(minor)))
    if names is None:
        pytest.skip("a release nobody has recorded")
    installed = {
        f"{schema.name}.{schema.overload_name or 'default'}": [argument.name for argument in schema.arguments]
        for schema in torch._C._jit_get_all_schemas()
    }
    assert {name: installed.get(name) for name in names} == names


@pytest.mark.parametrize("release", sorted(RELEASES), ids=lambda release: f"{release[0]}.{release[1]}")
def test_rules_read_names_that_the_schemas_have(release: tuple[int, int]) -> None:
    names = RELEASES[release]
    missing = set().union(*(absent(operator, rule, names) for operator, rule in rules()))
    known = {(operator, name) for operator, wanted in OTHERS_HAVE.items() for name in wanted}
    assert missing - known == set()


def test_nothing_is_excused_that_is_there() -> None:
    everywhere = [absent(operator, rule, RELEASES[max(RELEASES)]) for operator, rule in rules()]
    assert {(o, n) for o, wanted in OTHERS_HAVE.items() for n in wanted} <= set().union(*everywhere)
