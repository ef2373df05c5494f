"""Emulations that the engine's choice may run (entry point "emulate" of "analyzer.engines"): programs and
targets by PyTorch's own CUDA build, an ONNX file by ONNX Runtime's own CUDA provider."""

from __future__ import annotations

import os
import site
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import analyzer_sandbox as sandbox
from analyzer import releases
from analyzer.engines.choice import Emulation, EngineChoice
from analyzer.engines.sessions import has_sessions_alone
from analyzer.errors import OptionError
from analyzer.options import Options
from analyzer.ranks import Rank
from analyzer.results.estimate import Estimate
from analyzer.targets import parse
from analyzer_emulation.apart import Request, emulate, end, start

if TYPE_CHECKING:
    from analyzer_emulation.inference import Provider
    from analyzer_emulation.launch import Torch

_PROVIDER_HINT = (
    "ONNX Runtime's own CUDA provider runs it without a GPU: analyze engine install onnxruntime-gpu"
)
__all__ = ["compiled_target", "end", "of_program", "of_session", "of_target", "python", "start"]


def of_program(
    choice: EngineChoice,
    script: str | os.PathLike[str],
    args: Sequence[str],
    options: Options,
    environment: Mapping[str, str],
    until: str | int,
    job: Rank | None,
) -> Emulation[Torch] | Emulation[Provider]:
    """Return the emulation of a whole program, as one rank of a job: by PyTorch's own CUDA build, or ONNX
    Runtime's own CUDA provider where it runs nothing else."""

    def request(build: Torch | Provider) -> Request:
        from analyzer_verify.runs import jobs

        program_options = replace(options, runtime_options={}, release={}, strict=False)
        return Request(
            os.fspath(script),
            str(build.python),
            jobs.describe("", program_options)["options"],
            tuple(map(str, args)),
            until="end" if until == "auto" else until,
            environment={**jobs.environment_of(options), **environment},
            packages=_packages(build),
            job=asdict(job or Rank()),
            keep=choice.keep,
            network=choice.network,
            unprotected=choice.unprotected,
            gpus=choice.gpus,
        )

    if has_sessions_alone(script):
        return _serving_emulation(choice, request, options)
    return _torch_emulation(choice, request, options)


def of_target(choice: EngineChoice, target: str | os.PathLike[str], options: Options) -> Emulation[Torch]:
    """Return the emulation of a target's step."""

    def request(build: Torch) -> Request:
        from analyzer_verify.runs import jobs

        described = jobs.describe(target, options)
        return Request(
            described["target"],
            str(build.python),
            described["options"],
            is_target=True,
            unprotected=choice.unprotected,
        )

    return _torch_emulation(choice, request, options)


def of_session(choice: EngineChoice, target: Any, options: Options) -> Emulation[Provider]:
    """Return ONNX Runtime's own CUDA provider, for a file."""

    def find() -> Provider | None:
        from analyzer_emulation.reach import provider_within_reach

        return provider_within_reach(choice.python)

    def estimate(build: Provider) -> Estimate:
        from analyzer_emulation.provider import estimate_of

        if not _is_wanted_release("onnxruntime", build.version, options):
            wanted = options.release["onnxruntime"]
            raise OptionError(
                f"ONNX Runtime {build.version} of {build.python} is not {wanted}, which --release asks for",
                f"analyze engine install onnxruntime-gpu=={wanted}, or leave --release out",
            )
        return estimate_of(parse(os.fspath(target)), options, build)

    return Emulation(
        wanted="onnxruntime-gpu",
        hint=_PROVIDER_HINT,
        find=find,
        is_wanted=lambda build: _is_wanted_release("onnxruntime", build.version, options),
        name=lambda build: f"ONNX Runtime {build.version}",
        run=estimate,
        after_errors=False,
    )


def compiled_target(
    target: str | os.PathLike[str], options: Options, python: str | os.PathLike[str] | None
) -> Callable[[float], Estimate]:
    """Return a function that emulates a target under `torch.compile` with an `activation_memory_budget`.
    Raises MissingDependencyError where that Python's PyTorch is no CUDA build."""
    from analyzer_emulation.emulated import of_target as emulated_target
    from analyzer_emulation.launch import find_torch

    find_torch(python)
    return lambda budget: emulated_target(target, options, python, {}, compiled=budget).estimate


def python(given: str | None) -> str | None:
    """Return the Python whose PyTorch is emulated, as `reach.python`."""
    from analyzer_emulation import reach

    return reach.python(given)


def _torch_emulation(
    choice: EngineChoice, request: Callable[[Torch], Request], options: Options
) -> Emulation[Torch]:
    """Return PyTorch's own CUDA build, for a request."""
    from analyzer_emulation.reach import within_reach

    return Emulation(
        wanted="CUDA build of PyTorch",
        hint=_install_hint(),
        find=lambda: within_reach(choice.python),
        is_wanted=lambda build: _is_wanted_release("torch", build.version, options),
        name=lambda build: f"torch {build.version}",
        run=lambda build: _emulated(request(build)),
    )


def _serving_emulation(
    choice: EngineChoice, request: Callable[[Provider], Request], options: Options
) -> Emulation[Provider]:
    """Return ONNX Runtime's own CUDA provider, for a request."""
    from analyzer_emulation.reach import provider_within_reach

    return Emulation(
        wanted="onnxruntime-gpu",
        hint=_PROVIDER_HINT,
        find=lambda: provider_within_reach(choice.python),
        is_wanted=lambda build: _is_wanted_release("onnxruntime", build.version, options),
        name=lambda build: f"ONNX Runtime {build.version}",
        run=lambda build: _emulated(request(build)),
    )


def _emulated(request: Request) -> Estimate:
    estimate, outside = emulate(request), sandbox.outside()
    if outside is not None and estimate.incomplete is None:
        # Of what the traced program wrote: what the emulated one did is kept.
        outside.ask("keep nothing")
    return estimate


def _is_wanted_release(package: str, version: str, options: Options) -> bool:
    """Return whether a build is of the release whose figures are wanted."""
    wanted = options.release.get(package)
    return wanted is None or releases.parse(version) == releases.parse(wanted)


def _install_hint() -> str:
    from analyzer_emulation import store

    return f"PyTorch's own CUDA build runs it without a GPU: analyze engine install {store.DEFAULT}"


def _packages(build: Torch | Provider) -> tuple[str, ...]:
    """Return this Python's package folders for an environment that this tool made with PyTorch alone."""
    from analyzer_emulation import store

    if store.home() not in build.python.parents:
        return ()
    own = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return tuple(dict.fromkeys((*own, *site.getsitepackages())))
