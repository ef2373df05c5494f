"""Python imports this when it starts, where a sandboxed program started it: it joins the sandbox, then goes
on as it would have.

The sandbox's package is loaded by its place: whose Python this is need not have it.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _join() -> None:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    name = "analyzer_sandbox"
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.join()


def _run_shadowed_module() -> None:
    """Run the environment's own sitecustomize module, if there is one."""
    own_folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.machinery.PathFinder.find_spec(
        "sitecustomize", [path for path in sys.path if os.path.abspath(path) != own_folder]
    )
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if "ANALYZER_SANDBOX" in os.environ:
    _join()
_run_shadowed_module()
