"""Figures other people measured on real GPUs, and the programs that ask for the same (`programs/`).

What makes a figure loose is said here, from its source alone, before anything is predicted for it: loose ones are shown and not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

_MIB, _GIB_MIB, _MB = 1 << 20, 1024, 1e6 / (1 << 20)
_GB = 1000 * _MB


@dataclass(frozen=True)
class Figure:
    """One run that was published. Sizes in MiB; None: not said.

    torch: the release it ran with. allocated, reserved: of PyTorch's allocator. device: what NVML shows, of the process or of a GPU
    with nothing else on it. others: what other processes hold of the GPU's memory, where that is said. loose: why this figure ("allocated", "reserved", "device") is not of the program alone, or not wholly said.
    """

    name: str
    program: tuple[str, ...]
    gpu: str
    torch: str
    source: str
    allocated: float | None = None
    reserved: float | None = None
    device: float | None = None
    loose: tuple[tuple[str, str], ...] = ()
    others: float = 0.0


_VRAMEXP = (
    "WSShiro/vramexp at 12ad23c, vramexp1.ipynb: RTX 4090, torch 2.0.1, CUDA 11.7, cuDNN 8.5 (its requirements; its page says 11.8 and 8.9); "
    "device: less the 2,895.7 MiB that the desktop (662.1) and TensorFlow (2,233.6) held, as it prints them"
)
_ANATOMY = (
    "huggingface/transformers v4.21, docs/source/en/perf_train_gpu_one.mdx: Tesla V100-SXM2-16GB, torch 1.10, CUDA 11.2; what "
    "nvidia-smi shows, and reserved: less the 1,343 MiB it shows after the first tensor"
)
_TIPS = "rasbt/LLMs-from-scratch at 28c65cd, ch05/10_llm-training-speed/README.md: A100, torch 2.6.0+cu124, reserved after an epoch (GiB)"
_VITS = (
    "rasbt/pytorch-memory-optim at f6eddcd, logs.md: torch 2.1.0.dev20230623+cu118, largest reserved (GB); A100 as the article "
    "beside it says (lightning.ai, Optimizing Memory Usage for Training LLMs and Vision Transformers in PyTorch)"
)
_CACHES = (
    "rasbt/LLMs-from-scratch at 28c65cd, ch04/04_gqa, 05_mla, 06_swa (README.md): largest allocated (GiB)"
)
_SFT = (
    "FanBB2333/FakeGPU at 7d5cf83, docs/llm-sft-memory-estimation.md: RTX PRO 5000 72GB Blackwell, torch 2.8.0+cu128, and "
    "RTX 3090 Ti, torch 2.12.1+cu130; largest allocated (GiB)"
)
_ANSWER = (
    "FanBB2333/FakeGPU at 7d5cf83, docs/llm-inference-estimation.md: RTX PRO 5000 72GB Blackwell, torch 2.9.1, CUDA 12.8; bytes of "
    "the allocator, and NVML's of the process"
)
_WORKSPACES = (
    "FanBB2333/FakeGPU at 7d5cf83, fakegpu/data/workspace_profiles.json: RTX PRO 5000 72GB Blackwell, torch 2.9.1+cu128, cuDNN 9.10.2, "
    "and RTX 3090 Ti, torch 2.12.1+cu130, cuDNN 9.20; bytes beside tensors"
)
_OPTIMUM = (
    "huggingface.co/datasets/optimum-benchmark/cuda, its tests' runs on an A10G (AWS g5); bytes of the allocator, and NVML's of the "
    "whole GPU: commits 39f9a27 (resnet50, 2024-10, torch 2.4 or later), 056bbda (resnet50 before), 808523a (bert-base, torch 2.2.2), "
    "a8acf15 (roberta-base, torch 2.2.2), 38d6a60 (bert-base loaded)"
)
_OCTOCODER = "huggingface/transformers at 008f5c8, docs/source/en/llm_tutorial_optimization.md (written for 4.34): one A100, largest allocated (GiB)"
_PAGE = (
    "huggingface/transformers v3.0, docs/source/benchmarks.rst: TITAN RTX, torch 1.4.0, CUDA 10.1, NVML's of the GPU; of bert-base it "
    "prints 1,227 once and 1,277 once for the same run of 8 x 8 words, of which the second agrees with its other rows"
)
_LAYERS = (
    "WSShiro/vramexp at 12ad23c, vramexp_layer.ipynb: RTX 4090, torch 2.0.1, CUDA 11.7; largest allocated"
)
_SORTS = (
    "karpathy/minGPT#106 (January 2023): largest allocated, bytes, before and after; neither GPU nor release are said: torch 2.0's cuBLAS "
    "workspaces of two threads are in them, as large as on GPUs before Hopper"
)
_VECTOR = "discuss.pytorch.org/t/178671 (April 2023): a snapshot's bytes, with torch 1.10.0 and with a later one; the GPU is not said"
_ANSWERS = "rasbt/LLMs-from-scratch at 28c65cd, ch05/07_gpt_to_llama and ch05/11_qwen3 (README.md): A100, largest allocated (GiB)"
_WHICH_GPU = (("allocated", "the GPU is not said, and cuBLAS's workspace is 8 or 32 MiB by it"),)
_DRIVERS_OWN = (("device", "of the whole GPU with what its driver keeps, which is not said"),)
_OLD_CUDNN = (("reserved", "of cuDNN 8, whose plans for this network are not known"), *_DRIVERS_OWN)


def _vramexp(name: str, model: str, allocated: float, reserved: float, used: float) -> Figure:
    others = 662.1 + (1648.1 - 1462.2) + (3695.8 - 1648.1)
    return Figure(
        name,
        ("vramexp.py", model),
        "rtx4090",
        "2.0",
        _VRAMEXP,
        allocated,
        reserved,
        used - others,
        others=others,
    )


def _forward(name: str, hidden: int, layers: int, *used: int) -> tuple[Figure, ...]:
    return tuple(
        Figure(
            f"{name}, 8 x {words} words", ("bert_forward.py", *map(str, (hidden, layers, 8, words))), "titan-rtx", "1.4", _PAGE, device=mib
        )
        for words, mib in zip((8, 32, 128, 512), used, strict=True)
    )  # fmt: skip


def _layer(name: str, kind: str, allocated: float, reserved: float | None = None) -> Figure:
    return Figure(name, ("vramexp_layers.py", kind), "rtx4090", "2.0", _LAYERS, allocated, reserved)


def _sorts(name: str, allocated: int, *arguments: str) -> Figure:
    return Figure(name, ("sorting_gpt.py", *arguments), "a100-40gb", "2.0", _SORTS, allocated / _MIB)


def _answers(name: str, allocated: float, *arguments: str) -> Figure:
    return Figure(name, ("scratch_answer.py", *arguments), "a100-40gb", "2.6", _ANSWERS, allocated * _GIB_MIB)


def _anatomy(name: str, used: int, *arguments: str) -> Figure:
    return Figure(
        name, ("bert_large.py", *arguments), "v100", "1.10", _ANATOMY, reserved=used - 1343, device=used
    )


def _tips(name: str, changes: int, reserved: float, allocated: float | None = None) -> Figure:
    allocated_mib = None if allocated is None else allocated * _GIB_MIB
    return Figure(
        f"GPT-2 124M trained: {name}", ("scratch_gpt.py", str(changes)), "a100-40gb", "2.6", _TIPS, allocated_mib, reserved * _GIB_MIB
    )  # fmt: skip


def _vits(name: str, reserved: float, *arguments: str) -> Figure:
    return Figure(
        f"ViT-L/16, {name}", ("vit_large.py", *arguments), "a100-40gb", "2.1", _VITS, reserved=reserved * _GB
    )


def _caches(name: str, kind: str, allocated: float) -> Figure:
    return Figure(
        f"GPT, 32,768 words cached: {name}", ("grown_cache.py", kind), "a100-40gb", "2.9", _CACHES, allocated * _GIB_MIB, loose=_WHICH_GPU
    )  # fmt: skip


def _sft(arguments: str, allocated: float, gpu: str = "rtx-pro-5000", torch: str = "2.8") -> Figure:
    return Figure(
        f"Qwen3.5 {arguments}", ("qwen_sft.py", *arguments.split()), gpu, torch, _SFT, allocated * _GIB_MIB
    )


def _workspace(arguments: str, blackwell: int, ampere: int) -> tuple[Figure, Figure]:
    program = ("convolution.py", *arguments.split())
    return (
        Figure(f"conv2d 3 x 3, {arguments}", program, "rtx-pro-5000", "2.9", _WORKSPACES, blackwell / _MIB),
        Figure(f"conv2d 3 x 3, {arguments}", program, "rtx3090ti", "2.12", _WORKSPACES, ampere / _MIB),
    )


FIGURES = (
    _vramexp("CNN, batch 128, SGD", "cnn", 530.9, 604.0, 4983.2),
    _vramexp("VGG-16-BN, batch 128, SGD", "vgg16_bn", 17231.9, 18752.0, 23164.9),
    _vramexp("ResNet-50, batch 128, SGD", "resnet50", 11738.2, 12982.0, 17390.6),
    _vramexp("ViT-B/16, batch 128, SGD", "vit_b_16", 17218.1, 18142.0, 22545.5),
    _vramexp("UNETR, batch 8, SGD", "unetr", 5177.9, 9268.0, 13666.5),
    _layer("Convolution, 1,000 pictures", "conv", 3445),
    _layer("Two convolutions", "conv2", 4020),
    _layer("Convolution, ReLU", "relu", 3445),
    _layer("Convolution, batch norm", "norm", 4019.5, 4034),
    _layer("Convolution, dropout", "dropout", 3589),
    _layer("Convolution, softmax", "softmax", 3445),
    _layer("Convolution, attention", "attention", 4820),
    _sorts("minGPT nano", 32019456, "gpt-nano"),
    _sorts("minGPT nano, gradients given up early", 31666688, "gpt-nano", "early"),
    _sorts("minGPT XL", 30634800640, "gpt2-xl"),
    _sorts("minGPT XL, gradients given up early", 24607903232, "gpt2-xl", "early"),
    Figure("A vector by a matrix", ("matrix_by_vector.py",), "rtx3090", "1.10", _VECTOR, 45568 / _MIB, 2),
    Figure("A vector by a matrix, later", ("matrix_by_vector.py",), "rtx3090", "2.0", _VECTOR, (45568 + 8519680) / _MIB, 22),
    _answers("Llama 3.2 1B answers", 2.91, "llama"),
    _answers("Llama 3.2 1B answers, cached", 2.87, "llama", "cache"),
    _answers("Qwen3 0.6B answers", 1.49, "qwen"),
    _answers("Qwen3 0.6B answers, cached", 1.47, "qwen", "cache"),
    _answers("Qwen3 0.6B, eight answers", 2.19, "qwen8"),
    *_forward("BERT-base", 768, 12, 1277, 1281, 1307, 1539),
    *_forward("BERT, 384 wide", 384, 12, 1005, 1027, 1035, 1255),
    *_forward("BERT, 6 layers", 768, 6, 1097, 1101, 1127, 1359),
    _anatomy("BERT-large loaded", 2631, "load"),
    _anatomy("BERT-large, batch 4, AdamW", 14949, "4", "1"),
    _anatomy("BERT-large, 4 of batch 1", 8681, "1", "4"),
    _anatomy("BERT-large, 4 of batch 1, checkpoints", 6775, "1", "4", "checkpoint"),
    _anatomy("BERT-large, batch 4, fp16", 13939, "4", "1", "fp16"),
    _anatomy("BERT-large, 4 of batch 1, checkpoints, fp16", 7275, "1", "4", "checkpoint", "fp16"),
    _anatomy("BERT-large, batch 4, Adafactor", 12295, "4", "1", "adafactor"),
    _anatomy(
        "BERT-large, 4 of 1, checkpoints, fp16, Adafactor", 4847, "1", "4", "checkpoint", "fp16", "adafactor"
    ),
    _tips("as in the book", 0, 26.2617, 2.5069),
    _tips("mask on the fly", 1, 26.2422),
    _tips("tensor cores", 2, 26.2422),
    _tips("fused AdamW", 3, 26.2422),
    _tips("pinned memory", 4, 26.2422),
    _tips("bfloat16", 5, 13.7871),
    _tips("PyTorch's norms and GELU", 6, 11.5645),
    _tips("flash attention", 7, 5.9004),
    _vits("batch 64, Adam", 26.79, "float32", "64"),
    _vits("batch 64, 16-mixed", 18.21, "mixed", "64"),
    _vits("batch 64, bf16-true", 13.82, "bfloat16", "64"),
    _vits("batch 16, bf16-true", 5.69, "bfloat16", "16"),
    _vits("4 of batch 4, bf16-true", 3.91, "bfloat16", "4", "accumulate"),
    _vits("4 of batch 4, bf16-true, SGD", 2.02, "bfloat16", "4", "accumulate", "sgd"),
    _vits("moved, then halved", 1.24, "load", "late"),
    _vits("made in half", 0.65, "load", "half"),
    _caches("every head", "heads", 1.54),
    _caches("grouped", "groups", 0.63),
    _caches("latent", "latent", 0.68),
    _caches("windows", "window", 0.63),
    _sft("0.8B full 16 accumulate", 6.626),
    _sft("0.8B full 128", 6.687),
    _sft("0.8B full 128 checkpoint", 6.679),
    _sft("0.8B lora 16", 1.756),
    _sft("0.8B lora 128", 2.696),
    _sft("0.8B lora 128 checkpoint", 1.876),
    _sft("2B full 16 accumulate", 15.939),
    _sft("2B lora 16", 3.868),
    _sft("2B lora 128", 4.959),
    _sft("2B lora 128 checkpoint", 3.974),
    _sft("0.8B full 16", 6.630, "rtx3090ti", "2.12"),
    _sft("0.8B lora 128 checkpoint", 1.876, "rtx3090ti", "2.12"),
    Figure("Qwen3-8B loaded", ("qwen_answer.py", "load"), "rtx-pro-5000", "2.9", _ANSWER, 16383586816 / _MIB),
    Figure(
        "Qwen3-8B answers", ("qwen_answer.py",), "rtx-pro-5000", "2.9", _ANSWER, 16396630528 / _MIB, device=16835936256 / _MIB
    ),
    *_workspace("float32 2 64 128", 16925184, 8536576),
    *_workspace("bfloat16 2 64 128", 8462848, 8462848),
    *_workspace("float32 4 128 64", 17367552, 8978944),
    Figure(
        "ResNet-50 loaded", ("optimum.py", "resnet50", "load"), "a10g", "2.4", _OPTIMUM, 102.475264 * _MB, 123.731968 * _MB
    ),
    Figure(
        "ResNet-50, one picture", ("optimum.py", "resnet50", "forward"), "a10g", "2.4", _OPTIMUM, None, 148.897792 * _MB,
        798.490624 * _MB, _DRIVERS_OWN,
    ),
    Figure(
        "ResNet-50, one picture, before", ("optimum.py", "resnet50", "forward"), "a10g", "2.2", _OPTIMUM, None, 396.361728 * _MB,
        1047.003136 * _MB, _OLD_CUDNN,
    ),
    Figure(
        "BERT-base loaded", ("optimum.py", "bert-base", "load"), "a10g", "2.4", _OPTIMUM, None, 589.299712 * _MB, 1226.309632 * _MB,
        _DRIVERS_OWN,
    ),
    Figure(
        "BERT-base, Trainer, 2 x 16", ("optimum.py", "bert-base", "train"), "a10g", "2.2", _OPTIMUM, None, 2520.776704 * _MB,
        3169.32096 * _MB, _DRIVERS_OWN,
    ),
    Figure(
        "RoBERTa-base, Trainer, 2 x 16", ("optimum.py", "roberta-base", "train"), "a10g", "2.2", _OPTIMUM, None, 2730.491904 * _MB,
        3379.03616 * _MB, _DRIVERS_OWN,
    ),
    Figure("OctoCoder, bfloat16", ("octocoder.py", "bfloat16"), "a100-40gb", "2.0", _OCTOCODER, 29.0260648727417 * _GIB_MIB),
    Figure("OctoCoder, 8 bit", ("octocoder.py", "8bit"), "a100-40gb", "2.0", _OCTOCODER, 15.219234466552734 * _GIB_MIB),
    Figure("OctoCoder, 4 bit", ("octocoder.py", "4bit"), "a100-40gb", "2.0", _OCTOCODER, 9.543574333190918 * _GIB_MIB),
)  # fmt: skip
