"""Stands in for what public programs expect of the world outside: in both runs, the measured and the followed, by PYTHONPATH.

1. torchvision's data sets take the files they find for the right ones: data made at run time has other checksums.
2. Names that NumPy 2 took away mean what they meant in the time of the programs that use them.
3. Nothing is downloaded: who asks for a file that no data maker made is told so at once.

Modules that are not imported are not touched: each change is made where its module has just been imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path


def _torchvision_datasets(module):
    def check_integrity(fpath, *_):
        return Path(fpath).is_file()

    def refuse(url, *_, **__):
        raise RuntimeError(f"no data maker made what the program would download from {url}")

    module.check_integrity, module.check_md5 = check_integrity, lambda *_, **__: True
    module.download_url = module._urlretrieve = refuse


def _numpy(module):
    module.Inf, module.NaN = module.inf, module.nan
    for name, meant in {"float": float, "int": int, "object": object, "str": str, "complex": complex}.items():
        setattr(module, name, meant)
    for name, now in {
        "in1d": "isin",
        "row_stack": "vstack",
        "product": "prod",
        "alltrue": "all",
        "bool8": "bool_",
    }.items():
        setattr(module, name, getattr(module, now))
    of_text = module.fromstring

    def fromstring(string, dtype=float, count=-1, *, sep="", **other):
        if sep:
            return of_text(string, dtype, count, sep=sep, **other)
        return module.frombuffer(string, dtype, count).copy()

    module.fromstring = fromstring


_AFTER = {"numpy": _numpy, "torchvision.datasets.utils": _torchvision_datasets}


class _Loader(importlib.abc.Loader):
    """The module's own loader, and what is to be done behind it."""

    def __init__(self, loader, then):
        self.loader, self.then = loader, then

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        self.then(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of `_AFTER` as everyone would, and loads them with `_Loader`."""

    def find_spec(self, name, path=None, target=None):
        then = _AFTER.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if then else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, then)
        return spec


sys.meta_path.insert(0, _Finder())
