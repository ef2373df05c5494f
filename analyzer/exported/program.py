"""The JSON of an exported program: what in it would run as code, found before PyTorch reads it.

`torch.export.load` evaluates, or writes into Python code that it compiles:

1. Expressions of sizes: `sympy.sympify` evaluates them. Arithmetic of names and numbers is let through.
2. Operators: any name below `torch`, `math` or `operator` is looked up and called (`torch.os.system` is one).
   Dispatcher operators, control flow and arithmetic of sizes are let through.
3. Names of values and arguments become names in the code: they must be identifiers. Names of weights and
   modules are quoted there: they have no quotes.
4. `guards_code` is code; guards decide nothing here, so they are left out. So is what nodes say of where they
   come from, except the stack of modules and the stack trace.
5. Descriptions of nested arguments (`in_spec`): a `defaultdict`'s factory and an enumeration's class are
   imported by name.

Source: PyTorch 2.11 to 2.13: `torch/_export/serde/serialize.py`, `torch/utils/_pytree.py`,
`torch/fx/graph.py`.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from analyzer.files import UnreadableError, parse_json

# Functions of sizes: the deserializer's own, and those of sympy that sizes are printed with.
_FUNCTIONS = re.compile(
    r"FloorDiv|ModularIndexing|Where|PythonMod|Mod|CleanDiv|CeilToInt|FloorToInt|CeilDiv|LShift|RShift"
    r"|PowByNatural|FloatPow|FloatTrueDiv|IntTrueDiv|IsNonOverlappingAndDenseIndicator|TruncToFloat|TruncToInt"
    r"|RoundToInt|RoundDecimal|ToFloat|Identity|Max|Min|Eq|Ne|Lt|Le|Gt|Ge|Equality|Unequality|(Strict)?(Greater|Less)Than|And|Or|Not|Abs|floor|ceiling"
    r"|Piecewise|Symbol|Integer|Float|Rational|sqrt|log|exp|Add|Mul|Pow"
)
_POWERS = ("PowByNatural", "FloatPow", "Pow", "LShift")
# `^` and `<<` are not among them: to sympy the first is a power.
_NODES = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Name, ast.Constant)
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd, ast.BitOr)
_SYNTAX = (*_NODES, *_OPERATORS, ast.keyword, ast.Load, ast.unaryop, ast.boolop, ast.cmpop)
_LONGEST, _LARGEST_POWER = 10_000, 4096
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)(\.\w+)?")
_NAMESPACES = ("aten", "prims", "rngprims", "quantized", "quantized_decomposed", "torchvision")
# Of the dispatcher's operators these read or write files, or print.
_OUTSIDE = ("from_file", "_print", "save", "load")
_CONTROL = re.compile(
    r"associative_scan|auto_functionalized(_v2)?|cond|flex_attention(_backward)?|foreach_map|hints_wrapper"
    r"|invoke_subgraph|map_impl|out_dtype|run_const_graph|scan|strict_mode|tag_activation_checkpoint"
    r"|while_loop(_stack_output)?|wrap_activation_checkpoint|wrap_with_(autocast|set_grad_enabled)"
)
_OF_SIZES = re.compile(
    r"_operator\.(eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|mod|pow|truediv|and_|or_|not_|lshift|rshift"
    r"|getitem)|math\.(trunc|floor|ceil|sqrt)|torch\.(sym_\w+|_sym_sqrt)"
)
_WORD = re.compile(r"\w[\w.]{0,80}", re.ASCII)
_UNBACKED = re.compile(r"(u|zuf)\d{7,}")
_KEPT_METADATA = ("stack_trace", "nn_module_stack")
_QUOTED = ("as_string", "as_strings")  # their repr goes into the code
_NAMES = ("name", "as_name", "forward_arg_names")


def check(document: Any) -> str:
    """Return what would run as code ("" without any), and take out of the document what is not needed.
    Raises UnreadableError for what is no exported program."""
    if not isinstance(document, dict):
        raise UnreadableError("its program is no JSON object")
    document["guards_code"] = []
    try:
        return _code_in("", document)
    except RecursionError:
        raise UnreadableError("its program is nested too deeply") from None


def _code_in(key: str, value: Any) -> str:
    """Return the first thing below `value` that would run as code."""
    if isinstance(value, dict):
        if key == "range_constraints" and any(_UNBACKED.fullmatch(name) for name in value):
            raise UnreadableError("a size's symbol has an impossible number")
        if isinstance(value.get("metadata"), dict):
            value["metadata"] = {
                name: _lines(text) for name, text in value["metadata"].items() if name in _KEPT_METADATA
            }
        for name, part in value.items():
            code = _quote(name) or ("" if name == "metadata" else _code_in(name, part))
            if code:
                return code
        return ""
    if isinstance(value, list):
        return next(filter(None, (_code_in(key, part) for part in value)), "")
    return _of_text(key, value) if isinstance(value, str) else ""


def _of_text(key: str, text: str) -> str:
    """Return what is wrong with a text under a key."""
    if key == "expr_str":
        return "" if is_arithmetic(text) else f"the size {text[:80]!r}"
    if key in ("target", "as_operator"):
        return "" if is_operator(text) else f"the operator {text[:80]!r}"
    if key in ("in_spec", "out_spec"):
        return _in_structure(parse_json(text))
    if key in _QUOTED:
        return ""
    if key in _NAMES:
        return "" if not text or text.isidentifier() else f"the name {text[:80]!r}"
    return _quote(text)


def _quote(text: str) -> str:
    """Return what is wrong with a text that is written between quotes."""
    return "" if text.isprintable() and not set(text) & set("\"'\\") else f"the name {text[:80]!r}"


def _lines(text: Any) -> str:
    """Return the printable characters and line ends of a text that goes into comments."""
    return "".join(c for c in str(text) if c == "\n" or c.isprintable())


def _in_structure(part: Any) -> str:
    """Return what a description of nested arguments would import by name."""
    if isinstance(part, dict):
        if "__enum__" in part:
            return f"the enumeration {str(part.get('fqn'))[:80]!r}"
        if "default_factory_module" in part and part["default_factory_module"] != "builtins":
            return f"the factory {str(part.get('default_factory_name'))[:80]!r}"
        context = part.get("context")
        if isinstance(context, str) and context[:1] in ("{", "["):
            part = {**part, "context": parse_json(context)}
        part = list(part.values())
    return next(filter(None, map(_in_structure, part)), "") if isinstance(part, list) else ""


def is_arithmetic(text: str) -> bool:
    """Return whether an expression is arithmetic of names and numbers, of bounded powers."""
    if len(text) > _LONGEST:
        return False
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    powers = 1
    for node in nodes:
        if not isinstance(node, _SYNTAX):
            return False
        if isinstance(node, ast.Constant) and not _is_plain(node.value):
            return False
        if isinstance(node, ast.Name) and node.id.startswith("_"):
            return False
        exponent = None
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or not _FUNCTIONS.fullmatch(node.func.id):
                return False
            exponent = node.args[-1] if node.func.id in _POWERS and node.args else None
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            exponent = node.right
        if exponent is not None:
            powers *= _largest(exponent)
            if powers > _LARGEST_POWER:
                return False
    return True


def _is_plain(constant: object) -> bool:
    """Return whether it is a number, or a word as in `Symbol('s0')`."""
    if isinstance(constant, str):
        return _WORD.fullmatch(constant) is not None
    return isinstance(constant, int | float) and (constant == float("inf") or abs(constant) < 2**64)


def _largest(exponent: ast.expr) -> int:
    """Return how large an exponent is: 1 of a size, beyond every bound of what is computed."""
    if isinstance(exponent, ast.UnaryOp):
        exponent = exponent.operand
    if isinstance(exponent, ast.Call) and len(exponent.args) == 1:  # Integer(2), Symbol('s0')
        exponent = exponent.args[0]
    if isinstance(exponent, ast.Constant) and isinstance(exponent.value, int | float):
        return max(1, int(min(abs(exponent.value), _LARGEST_POWER + 1)))
    return 1 if isinstance(exponent, ast.Name | ast.Constant) else _LARGEST_POWER + 1


def is_operator(target: str) -> bool:
    """Return whether a name is an operator that computes tensors or sizes."""
    match = _OPERATOR.fullmatch(target)
    if match is None:
        return _OF_SIZES.fullmatch(target) is not None
    namespace, name, _ = match.groups()
    if namespace == "higher_order":
        return _CONTROL.fullmatch(name) is not None and target.count(".") == 3
    return namespace in _NAMESPACES and name not in _OUTSIDE
