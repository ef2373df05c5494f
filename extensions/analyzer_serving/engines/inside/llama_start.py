"""llama.cpp itself, started by its C interface (include/llama.h) as `llama-server` starts it, in a process
of its own: `python llama_start.py JOB.json ANSWER.jsonl`. Only the standard library is imported.

1. Its libraries are loaded, its parameters are what the server makes of the options (common/common.cpp,
   tools/server/server.cpp of the release below), and its log goes to stderr and into the answer.
2. Phases: backends loaded, model loaded, context made, warmed up, a prompt of one batch read, tokens
   decoded, every sequence filled. After each the device's free memory is asked, and written down at once:
   a process that aborts leaves what it had reached.

The layouts of its two structures are those of one release; another one's defaults would not match
`_DEFAULTS`, and it is refused.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import c_bool, c_char_p, c_float, c_int32, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

RELEASE = "v0.5.0"
_FIT = (
    "_Z17common_fit_paramsPKcP18llama_model_paramsP20llama_context_paramsPfP32llama_model_tensor_buft_override"
    "PmjPK22common_fit_extra_model14ggml_log_level"
)
_DEVICES = 128  # at most of common_params.tensor_split
_OVERRIDES = 4096
_MIB = 2**20
_DECODED = 3  # tokens: with the second one ggml captures a CUDA graph
_DEBUG, _CONTINUES = 1, 5  # enum ggml_log_level


class Override(ctypes.Structure):
    """struct llama_model_tensor_buft_override."""

    _fields_ = (("pattern", c_char_p), ("buffer_type", c_void_p))


class ModelParameters(ctypes.Structure):
    """struct llama_model_params."""

    _fields_ = (
        ("devices", c_void_p),
        ("tensor_buft_overrides", ctypes.POINTER(Override)),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int32),
        ("load_mode", c_int32),
        ("lazy_mode", c_int32),
        ("main_gpu", c_int32),
        ("tensor_split", ctypes.POINTER(c_float)),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
        ("kv_overrides", c_void_p),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        ("no_host", c_bool),
        ("no_alloc", c_bool),
        ("load_mtp", c_bool),
    )


class ContextParameters(ctypes.Structure):
    """struct llama_context_params."""

    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("ctx_type", c_int32),
        ("rope_scaling_type", c_int32),
        ("pooling_type", c_int32),
        ("attention_type", c_int32),
        ("flash_attn_type", c_int32),
        ("rope_freq_base", c_float),
        ("rope_freq_scale", c_float),
        ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float),
        ("yarn_beta_fast", c_float),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int32),
        ("type_v", c_int32),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("embeddings", c_bool),
        ("offload_kqv", c_bool),
        ("no_perf", c_bool),
        ("op_offload", c_bool),
        ("swa_full", c_bool),
        ("kv_unified", c_bool),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
    )


class Batch(ctypes.Structure):
    """struct llama_batch."""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", ctypes.POINTER(c_int32)),
        ("embd", c_void_p),
        ("pos", ctypes.POINTER(c_int32)),
        ("n_seq_id", ctypes.POINTER(c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


# Members of the two structures whose defaults no option of a build changes (src/llama-model.cpp,
# src/llama-context.cpp): a structure of another layout shows other values here.
_DEFAULTS: dict[type[ctypes.Structure], dict[str, Any]] = {
    ModelParameters: {"n_gpu_layers": -1, "split_mode": 1, "load_mode": -1, "lazy_mode": 1, "main_gpu": 0},
    ContextParameters: {
        "n_ctx": 512,
        "n_batch": 2048,
        "n_ubatch": 512,
        "n_seq_max": 1,
        "rope_scaling_type": -1,
        "flash_attn_type": -1,
        "yarn_ext_factor": -1.0,
        "defrag_thold": -1.0,
        "type_k": 1,
        "type_v": 1,
        "offload_kqv": True,
        "op_offload": True,
    },
}


class Answer:
    """The answer's file: one line of JSON for each thing that is known."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._path.write_text("", "utf-8")

    def add(self, **values: Any) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


class Llama:
    """The libraries of a folder, as C functions."""

    def __init__(self, folder: Path, answer: Answer) -> None:
        self.answer = answer
        self._kept: list[Any] = []
        self.base = ctypes.CDLL(str(_one(folder, "libggml-base")), ctypes.RTLD_GLOBAL)
        self.ggml = ctypes.CDLL(str(_one(folder, "libggml.")), ctypes.RTLD_GLOBAL)
        self.llama = ctypes.CDLL(str(_one(folder, "libllama.")), ctypes.RTLD_GLOBAL)
        self.common = ctypes.CDLL(str(_one(folder, "libllama-common")))
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int, c_char_p, c_void_p)
        self._log = kind(self._line)
        self._begun, self._level = "", 0
        self.llama.llama_log_set(self._log, None)
        self.ggml.ggml_backend_load_all_from_path(str(folder).encode())
        self.llama.llama_backend_init()
        for name, value in (
            ("llama_model_default_params", ModelParameters),
            ("llama_context_default_params", ContextParameters),
            ("llama_model_load_from_file", c_void_p),
            ("llama_init_from_model", c_void_p),
            ("llama_model_get_vocab", c_void_p),
            ("llama_get_memory", c_void_p),
        ):
            getattr(self.llama, name).restype = value
        self.cpu_buffer_type = _cpu_buffer_type(self.base, self.ggml)

    def _line(self, level: int, text: bytes, _: Any) -> None:
        self._level = self._level if level == _CONTINUES else level
        if self._level == _DEBUG:
            return
        words = text.decode("utf-8", "replace")
        sys.stderr.write(words)
        self._begun += words
        *lines, self._begun = self._begun.split("\n")
        for line in lines:
            self.answer.add(line=line, level=level)

    def defaults(self, name: str, layout: type[ctypes.Structure]) -> Any:
        """Return a structure of defaults. Raises ValueError where the release has another layout."""
        results = getattr(self.llama, name)()
        for member, value in _DEFAULTS[layout].items():
            if getattr(results, member) != value:
                raise ValueError(
                    f"its {name} differs from llama.cpp {RELEASE}'s: {member} is {getattr(results, member)}"
                )
        return results

    def keep(self, value: Any) -> Any:
        self._kept.append(value)
        return value


def _one(folder: Path, start: str) -> Path:
    results = sorted(path for path in folder.glob(f"{start}*so*") if "cpu" not in path.name)
    if not results:
        raise ValueError(f"{folder} has no {start}*.so")
    return results[0]


def _cpu_buffer_type(*libraries: ctypes.CDLL) -> Any:
    for library in libraries:
        function = getattr(library, "ggml_backend_cpu_buffer_type", None)
        if function is not None:
            function.restype = c_void_p
            return function
    raise ValueError("ggml_backend_cpu_buffer_type is in neither of ggml's libraries")


class Memory:
    """Bytes of each device that are in use, by the CUDA runtime."""

    def __init__(self) -> None:
        for name in ("libcudart.so.13", "libcudart.so.12"):
            try:
                self._cudart = ctypes.CDLL(name)
                break
            except OSError:
                continue
        count = c_int32()
        self._cudart.cudaGetDeviceCount(ctypes.byref(count))
        self.count = count.value

    def used(self) -> list[int]:
        """Return the bytes in use of each device."""
        before, results = c_int32(), []
        self._cudart.cudaGetDevice(ctypes.byref(before))
        for device in range(self.count):
            available, total = c_size_t(), c_size_t()
            self._cudart.cudaSetDevice(device)
            self._cudart.cudaDeviceSynchronize()
            self._cudart.cudaMemGetInfo(ctypes.byref(available), ctypes.byref(total))
            results.append(total.value - available.value)
        self._cudart.cudaSetDevice(before)
        return results


def parameters(llama: Llama, settings: dict[str, Any]) -> tuple[ModelParameters, ContextParameters]:
    """Return what the server makes of the settings (common_model_params_to_llama,
    common_context_params_to_llama)."""
    model = llama.defaults("llama_model_default_params", ModelParameters)
    context = llama.defaults("llama_context_default_params", ContextParameters)
    for name, value in settings["model"].items():
        setattr(model, name, value)
    for name, value in settings["context"].items():
        setattr(context, name, value)
    split = llama.keep((c_float * _DEVICES)(*settings["tensor_split"]))
    model.tensor_split = ctypes.cast(split, ctypes.POINTER(c_float))
    rows = llama.keep((Override * _OVERRIDES)())
    kind = llama.cpu_buffer_type()
    for row, pattern in zip(rows, settings["on_cpu"], strict=False):
        row.pattern, row.buffer_type = pattern.encode(), kind
    if settings["on_cpu"] or settings["fit"]:
        model.tensor_buft_overrides = ctypes.cast(rows, ctypes.POINTER(Override))
    if settings["fit"]:
        margins = (c_size_t * _DEVICES)(*([settings["fit_target"] * _MIB] * _DEVICES))
        status = getattr(llama.common, _FIT)(
            settings["path"].encode(),
            ctypes.byref(model),
            ctypes.byref(context),
            split,
            rows,
            margins,
            c_uint32(settings["fit_context"]),
            None,
            4,  # GGML_LOG_LEVEL_ERROR
        )
        llama.answer.add(fit=status, n_ctx=context.n_ctx, n_gpu_layers=model.n_gpu_layers)
    return model, context


class Decoder:
    """Reads tokens into a context's sequences, as many as they hold."""

    def __init__(self, llama: Llama, context: int, sequences: int) -> None:
        self._llama = llama.llama
        self._context = c_void_p(context)
        self._positions = [0] * sequences
        self._length = int(self._llama.llama_n_ctx_seq(self._context))

    def left(self, sequence: int) -> int:
        return self._length - self._positions[sequence]

    def read(self, count: int, sequence: int = 0) -> int:
        """Read so many tokens of a sequence at once; return llama_decode's status."""
        count = min(count, self.left(sequence))
        at = self._positions[sequence]
        ids = (c_int32 * 1)(sequence)
        batch = Batch(
            count,
            (c_int32 * count)(*([5] * count)),
            None,
            (c_int32 * count)(*range(at, at + count)),
            (c_int32 * count)(*([1] * count)),
            (ctypes.POINTER(c_int32) * count)(*([ctypes.cast(ids, ctypes.POINTER(c_int32))] * count)),
            (ctypes.c_int8 * count)(*([0] * (count - 1) + [1])),
        )
        self._positions[sequence] += count
        status = int(self._llama.llama_decode(self._context, batch))
        self._llama.llama_synchronize(self._context)
        return status

    def forget(self) -> None:
        """Empty every sequence, as after a warm-up."""
        self._llama.llama_memory_clear(c_void_p(self._llama.llama_get_memory(self._context)), c_bool(True))
        self._positions = [0] * len(self._positions)


def run(job: dict[str, Any], answer: Answer) -> None:
    """Go through the phases of a job."""
    memory = Memory()

    def phase(name: str, status: int = 0) -> bool:
        answer.add(phase=name, used=memory.used(), status=status)
        return status == 0

    llama = Llama(Path(job["libraries"]), answer)
    phase("backend")
    settings = job["settings"]
    model_parameters, context_parameters = parameters(llama, settings)
    model = llama.llama.llama_model_load_from_file(settings["path"].encode(), model_parameters)
    if not phase("model", 0 if model else 1):
        return
    answer.add(
        layers=llama.llama.llama_model_n_layer(c_void_p(model)),
        trained=llama.llama.llama_model_n_ctx_train(c_void_p(model)),
    )
    context = llama.llama.llama_init_from_model(c_void_p(model), context_parameters)
    if not phase("context", 0 if context else 1):
        return
    answer.add(
        n_ctx=llama.llama.llama_n_ctx(c_void_p(context)),
        n_ctx_seq=llama.llama.llama_n_ctx_seq(c_void_p(context)),
    )
    decoder = Decoder(llama, context, context_parameters.n_seq_max)
    if settings["warmup"]:
        llama.llama.llama_set_warmup(c_void_p(context), c_bool(True))
        status = decoder.read(2)
        decoder.forget()
        llama.llama.llama_set_warmup(c_void_p(context), c_bool(False))
        if not phase("warmup", status):
            return
    if not phase("prompt", decoder.read(min(context_parameters.n_batch, decoder.left(0) - _DECODED))):
        return
    if not phase("decode", next(filter(None, (decoder.read(1) for _ in range(_DECODED))), 0)):
        return
    if job.get("fill", True):
        phase("full", _fill(decoder, context_parameters))


def _fill(decoder: Decoder, context: ContextParameters) -> int:
    """Read until each sequence is full, or the cache that they share; return the first status that is not
    0."""
    for sequence in range(1 if context.kv_unified else context.n_seq_max):
        while decoder.left(sequence):
            if status := decoder.read(context.n_batch, sequence):
                return status
    return 0


if __name__ == "__main__":
    written = Answer(sys.argv[2])
    try:
        run(json.loads(Path(sys.argv[1]).read_text("utf-8")), written)
    except ValueError as error:
        written.add(error=str(error))
        sys.exit(2)
    written.add(done=True)
