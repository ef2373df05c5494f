"""What a followed program's libraries log only because of being followed."""

import logging
from pathlib import Path

import pytest

import analyzer
from analyzer.logs import without_ours
from analyzer.spec import TensorSpec

_ERROR = "libcublas.so.13: cannot open shared object file: No such file or directory"


def _log_failure(name: str, text: str) -> None:
    try:
        raise OSError(text)
    except OSError as error:
        logging.getLogger(name).error("library load error: %s", error, exc_info=True)


def test_cuda_library_that_is_not_here_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """bitsandbytes' words where its library for CUDA cannot be loaded, and those of its library for CPUs."""
    cpu = logging.getLogger("bitsandbytes.backends.cpu.ops")
    with without_ours():
        _log_failure("bitsandbytes.cextension", _ERROR)
        cpu.warning("Failed to load CPU gemm_4bit_forward from kernels-community")
        assert not caplog.records
        _log_failure("mine", "libmine.so: cannot open shared object file: No such file or directory")
        logging.getLogger("bitsandbytes").warning("of its own")
    _log_failure("bitsandbytes.cextension", _ERROR)
    assert [record.name for record in caplog.records] == ["mine", "bitsandbytes", "bitsandbytes.cextension"]


def test_followed_program_and_target_say_nothing_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import logging, torch\n"
        f"try:\n    raise OSError({_ERROR!r})\n"
        "except OSError:\n    logging.getLogger('library').error('load error', exc_info=True)\n"
        "def make_model(): return torch.nn.Linear(2, 2)\n"
        "if __name__ == '__main__': make_model().cuda()\n"
    )
    analyzer.run(str(script), device="t4")
    analyzer.analyze(str(script), (TensorSpec((1, 2)),), device="t4")
    assert not caplog.records
