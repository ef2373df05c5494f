"""A recipe as a Python script: an ordinary one, which runs on a GPU and is followed like any other.

1. The checkpoint takes no memory: a tensor of it is one number, read as often as its shape asks for. Its
   names and shapes are those `save_pretrained` would write, so `from_pretrained` does with it what it does
   with the real one: the same device map, warm-up of the allocator, conversions, quantization.
2. The step is the plainest there is: inputs made on the GPU, forward, backward, optimizer, gradients dropped.
3. Where transformers would compile (a static cache), the script says `disable_compile=True`: what is followed
   is eager code.

Not modelled: Trainer's two groups of parameters, clipping and logging; a tokenizer's padding (every sequence
has `--length`).
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.parallelism import Parallelism
from analyzer.recipes import stored, trainers
from analyzer.recipes.recipe import Recipe

_AUTO = {
    "causal-lm": "AutoModelForCausalLM",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "classification": "AutoModelForSequenceClassification",
    "vision": "AutoModelForImageClassification",
    **dict.fromkeys(trainers.TRAINERS, "AutoModelForCausalLM"),
    "reward": "AutoModelForSequenceClassification",
}
_PEFT_TASK = {
    "causal-lm": "CAUSAL_LM",
    "seq2seq": "SEQ_2_SEQ_LM",
    "classification": "SEQ_CLS",
    **dict.fromkeys(trainers.TRAINERS, "CAUSAL_LM"),
    "reward": "SEQ_CLS",
}
_AMP = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}


def script(recipe: Recipe) -> str:
    """Return the program's source code."""
    parts = (_import_lines(recipe), _loading_lines(recipe), _adapter_lines(recipe), _closing_lines(recipe))
    return "\n".join(line for part in parts for line in part) + "\n"


def auto_class(recipe: Recipe) -> str:
    """Return the name of the class of transformers that makes the model."""
    if recipe.task == "speech":
        return "AutoModelForSpeechSeq2Seq" if "num_mel_bins" in recipe.config.document else "AutoModelForCTC"
    document = recipe.config.document
    is_language_model = any(
        str(name).endswith("ForConditionalGeneration") for name in document.get("architectures") or ()
    )
    if recipe.task == "causal-lm" and is_language_model and "vision_config" in document:
        return "AutoModelForImageTextToText"  # as a causal language model it has no encoder, or is not known
    return _AUTO[recipe.task]


def _import_lines(recipe: Recipe) -> Iterator[str]:
    """Yield the imports, the process group of a job of several ranks, and the configuration."""
    yield (
        f'"""{recipe.mode.capitalize()} on a GPU, batch {recipe.batch}: {_safe(recipe.title)}. Written by'
        ' analyze."""'
    )
    names = ["AutoConfig", auto_class(recipe)]
    if recipe.bits:
        names.append("BitsAndBytesConfig")
    if recipe.stored and recipe.dequantize:
        names.append(stored.dequantized(recipe.stored))
    of_trl = recipe.task in trainers.TRAINERS
    if recipe.mode == "train" and recipe.optimizer == "adafactor" and not of_trl:
        names.append("Adafactor")
    if recipe.parallel:
        yield "import os"
    if "bitsandbytes" in recipe.packages and not of_trl:
        yield "import bitsandbytes"
    yield "import torch"
    if recipe.parallel:
        yield "import torch.distributed"
    if recipe.lora:
        yield "from peft import LoraConfig" + (
            "" if of_trl else ", get_peft_model" + ", prepare_model_for_kbit_training" * recipe.in_bits
        )
    if recipe.sharded:
        yield "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard"
    yield f"from transformers import {', '.join(sorted(names))}"
    if recipe.load != "gpu" and not recipe.sharded:
        yield "from transformers.core_model_loading import revert_weight_conversion"
    if recipe.stored:
        yield from stored.imports(recipe.stored)
    if of_trl:
        yield from trainers.imports(recipe)
    yield ""
    if recipe.parallel:
        yield 'torch.distributed.init_process_group("nccl")'
        yield 'here = int(os.environ["LOCAL_RANK"])'
        yield "torch.cuda.set_device(here)"
    yield f"config = AutoConfig.from_pretrained({str(recipe.config.path)!r}, trust_remote_code=False)"


def _safe(text: str) -> str:
    """Return a name that may stand in a docstring."""
    return "".join(letter for letter in text if letter.isprintable() and letter not in '"\\')


def _loading_lines(recipe: Recipe) -> Iterator[str]:
    """Yield how the model, and a reference model, are made or loaded from a checkpoint without weights."""
    auto, dtype = auto_class(recipe), f"torch.{recipe.dtype}"
    attention = f", attn_implementation={recipe.attn!r}" if recipe.attn else ""
    if recipe.sharded:
        yield 'with torch.device("meta"):'
        yield f"    model = {auto}.from_config(config, dtype={dtype}{attention})"
        return
    models = ("model", "reference") if recipe.has_reference else ("model",)
    if recipe.task == "reward":
        yield "config.num_labels, config.pad_token_id = 1, 0"
    if recipe.load == "gpu":
        yield 'with torch.device("cuda"):'
        for model in models:
            yield f"    {model} = {auto}.from_config(config, dtype=torch.float32{attention}).to({dtype})"
        return
    yield "# A checkpoint that takes no memory: each tensor is one zero, read as often as its shape asks for."
    yield 'with torch.device("meta"):'
    yield f"    skeleton = {auto}.from_config(config, dtype={dtype})"
    if recipe.stored:
        yield from stored.modules(recipe.stored, "here" if recipe.parallel else "0", dtype)
        yield from stored.packed(recipe.stored, f"torch.{recipe.config.dtype}")
    yield (
        "held = {name: w for name, w in skeleton.state_dict().items() if name not in"
        " skeleton.all_tied_weights_keys}"
    )
    if recipe.stored:
        yield from stored.renamed(recipe.stored)
    yield "checkpoint = {"
    yield "    name: torch.zeros((), dtype=w.dtype).expand(w.shape)" + " if w.is_meta else w" * bool(
        recipe.stored
    )
    yield "    for name, w in revert_weight_conversion(skeleton, held).items()"
    yield "}"
    for model in models:
        yield f"{model} = type(skeleton).from_pretrained("
        yield f"    None, config=config, state_dict=checkpoint, dtype={dtype}{attention},"
        if recipe.load == "device-map":
            yield f'    device_map={{"": {"here" if recipe.parallel else 0}}},'
        if recipe.stored and recipe.dequantize:
            yield f"    quantization_config={stored.dequantized(recipe.stored)}(dequantize=True),"
        if recipe.bits == 8:
            yield "    quantization_config=BitsAndBytesConfig(load_in_8bit=True),"
        elif recipe.bits:
            yield "    quantization_config=BitsAndBytesConfig("
            yield (
                '        load_in_4bit=True, bnb_4bit_quant_type="nf4",'
                f" bnb_4bit_use_double_quant={not recipe.no_double_quant},"
            )
            yield f"        bnb_4bit_compute_dtype={dtype},"
            yield "    ),"
        yield ")"
    yield "del skeleton, held, checkpoint"


def _adapter_lines(recipe: Recipe) -> Iterator[str]:
    """Yield LoRA, gradient checkpointing, and the mode; a TRL trainer does these itself."""
    placed = ".cuda()" if recipe.load == "cpu" else ""
    if recipe.task in trainers.TRAINERS:  # which adapts the model itself, and sets its mode
        if placed:
            yield f"model{placed}"
            if recipe.has_reference:
                yield f"reference{placed}"
        return
    if recipe.lora and recipe.in_bits:
        yield (
            "model = prepare_model_for_kbit_training("
            f"model, use_gradient_checkpointing={recipe.gradient_checkpointing})"
        )
    if recipe.lora:
        yield f"model = get_peft_model(model, {_adapter(recipe)})"
    if recipe.gradient_checkpointing and not (recipe.lora and recipe.in_bits):
        yield "model.gradient_checkpointing_enable()"
        if recipe.lora:
            yield "model.enable_input_require_grads()"
    yield f"model{placed}.{'train' if recipe.mode == 'train' else 'eval'}()"
    if recipe.ranks is not None:
        yield from _spread(recipe.ranks)


def _adapter(recipe: Recipe) -> str | None:
    """Return the source code of peft's configuration, None without an adapter."""
    lora = recipe.adapters
    if lora is None:
        return None
    targets = lora.targets[0] if lora.targets == ("all-linear",) else list(lora.targets) or None
    return (
        f"LoraConfig(r={lora.r}, lora_alpha={lora.alpha}, lora_dropout={lora.dropout},"
        f" target_modules={targets!r}, task_type={_PEFT_TASK.get(recipe.task)!r})"
    )


def _spread(parallel: Parallelism) -> Iterator[str]:
    """Yield the lines that spread the model over the ranks."""
    settings = {name: value for name, value in parallel.settings.items() if name != "rank"}
    if parallel.kind == "ddp":
        more = "".join(f", {name}={value!r}" for name, value in settings.items())
        yield f"model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[here]{more})"
        return
    types = {"param_dtype": settings.pop("mixed", None), "reduce_dtype": settings.pop("reduce_dtype", None)}
    if types["param_dtype"] and not types["reduce_dtype"]:
        types["reduce_dtype"] = "float32"
    policy = ", ".join(f"{name}=torch.{dtype}" for name, dtype in types.items() if dtype)
    more = "".join(f", {name}={value!r}" for name, value in settings.items())
    yield f"policy = MixedPrecisionPolicy({policy})"
    yield "for part in model.modules():"
    yield "    if type(part).__name__ in model._no_split_modules:"
    yield f"        fully_shard(part, mp_policy=policy{more})"
    yield f"fully_shard(model, mp_policy=policy{more})"
    yield 'model.to_empty(device="cuda")'


def _closing_lines(recipe: Recipe) -> Iterator[str]:
    if recipe.task in trainers.TRAINERS:
        yield from trainers.trained(recipe, _adapter(recipe))
        return
    yield {"train": _training_loop, "infer": _inference_loop, "generate": _generation_loop}[recipe.mode](
        recipe
    )


def _training_loop(recipe: Recipe) -> str:
    """Return the training loop: optimizer, gradient accumulation, scaled loss under fp16."""
    scaled = recipe.amp == "fp16"
    backward = "scaler.scale(loss).backward()" if scaled else "loss.backward()"
    lines = ["trained = [p for p in model.parameters() if p.requires_grad]"]
    if "optim_bits=8" in recipe.optimizer_call:
        lines += [
            "# Trainer keeps embeddings' states in 32 bits.",
            "for module in model.modules():",
            "    if isinstance(module, torch.nn.Embedding):",
            "        bitsandbytes.optim.GlobalOptimManager.get_instance().register_module_override(",
            '            module, "weight", {"optim_bits": 32}',
            "        )",
        ]
    lines += [f"optimizer = {recipe.optimizer_call}", *(['scaler = torch.amp.GradScaler("cuda")'] * scaled)]
    lines += [f"for step in range({recipe.steps}):"]
    indent = "    "
    if recipe.grad_accumulation > 1:
        lines.append(f"    for _ in range({recipe.grad_accumulation}):")
        indent += "    "
    batch_lines, arguments = _inputs(recipe, labels=True)
    lines += [
        indent + line
        for line in (*batch_lines, *_autocast(recipe, f"loss = model({arguments}).loss"), backward)
    ]
    ends = ["scaler.step(optimizer)", "scaler.update()"] if scaled else ["optimizer.step()"]
    return "\n".join([*lines, *(f"    {line}" for line in (*ends, "optimizer.zero_grad()"))])


def _inference_loop(recipe: Recipe) -> str:
    batch_lines, arguments = _inputs(recipe, labels=False)
    lines = [
        f"for step in range({recipe.steps}):",
        *(f"    {line}" for line in batch_lines),
        "    with torch.no_grad():",
    ]
    return "\n".join(
        [*lines, *(f"        {line}" for line in _autocast(recipe, f"output = model({arguments})"))]
    )


def _generation_loop(recipe: Recipe) -> str:
    """Return the call of `generate` with the recipe's cache, prompt and beams."""
    cache = repr(None if recipe.cache == "dynamic" else recipe.cache)
    if (
        recipe.cache == "quantized"
    ):  # in 4 bits, as it is by default; quanto's kernels, which would be the default, are not followed
        cache += ', cache_config={"backend": "hqq"}'
    piece = f", prefill_chunk_size={recipe.prefill_chunk}" if recipe.prefill_chunk else ""
    beams = f", num_beams={recipe.beams}" if recipe.beams > 1 else ""
    first_line, called = (
        f"ids = {_tokens(recipe)}",
        "ids, attention_mask=torch.ones_like(ids), pad_token_id=0",
    )
    if recipe.task == "speech":
        first_line, called = _sound(recipe), "sound"
    call_lines = [
        first_line,
        "tokens = model.generate(",
        f"    {called},",
        f"    max_new_tokens={recipe.new_tokens}, min_new_tokens={recipe.new_tokens},"
        f" do_sample={recipe.sample}{beams},",
        f"    cache_implementation={cache}, disable_compile=True{piece},",
        ")",
    ]
    return "\n".join([call_lines[0], *_autocast(recipe, *call_lines[1:])])


def _autocast(recipe: Recipe, *lines: str) -> list[str]:
    """Return the lines under autocast if mixed precision is on."""
    if recipe.amp is None:
        return list(lines)
    return [f'with torch.autocast("cuda", {_AMP[recipe.amp]}):', *(f"    {line}" for line in lines)]


def _tokens(recipe: Recipe) -> str:
    words = recipe.config.number("vocab_size") or "config.get_text_config().vocab_size"
    return f'torch.randint(0, {words}, ({recipe.batch}, {recipe.length}), device="cuda")'


def _inputs(recipe: Recipe, labels: bool) -> tuple[list[str], str]:
    """Return the lines that make a batch, and the arguments of the model's call."""
    document, batch = recipe.config.document, recipe.batch
    classes = f'torch.randint(0, config.num_labels, ({batch},), device="cuda")'
    if recipe.task in ("causal-lm", "seq2seq"):
        second = {True: ", labels=ids", False: ", decoder_input_ids=ids" if recipe.task == "seq2seq" else ""}
        return [f"ids = {_tokens(recipe)}"], f"input_ids=ids{second[labels]}"
    if recipe.task == "classification":
        lines, arguments, target = f"ids = {_tokens(recipe)}", "input_ids=ids", classes
    elif recipe.task == "vision":
        size, channels = recipe.config.number("image_size", 224), recipe.config.number("num_channels", 3)
        shape = f"{batch}, {channels}, {size}, {size}"
        lines, arguments, target = f"pixels = {_noise(shape)}", "pixel_values=pixels", classes
    elif "num_mel_bins" in document:
        lines, arguments, target = _sound(recipe), "input_features=sound", _tokens(recipe)
        if not labels:
            return [lines, f"ids = {target}"], f"{arguments}, decoder_input_ids=ids"
    else:
        lines, arguments = f"sound = {_noise(f'{batch}, {recipe.length}')}", "input_values=sound"
        target = f'torch.randint(1, config.vocab_size, ({batch}, 8), device="cuda")'
    return ([lines, f"labels = {target}"], f"{arguments}, labels=labels") if labels else ([lines], arguments)


def _sound(recipe: Recipe) -> str:
    """Return the line that makes a whole window of sound, as mel bins."""
    config = recipe.config
    frames = f"2 * {config.number('max_source_positions', 1500)}"  # halved by the second convolution
    shape = f"{recipe.batch}, {config.number('num_mel_bins')}, {frames}"
    return f"sound = {_noise(shape)}"


def _noise(shape: str) -> str:
    return f'torch.randn({shape}, device="cuda", dtype=model.dtype)'
