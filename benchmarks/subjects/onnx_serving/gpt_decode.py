"""Tokens one after the other; keys and values stay on the GPU by IO binding."""

import graphs
import numpy as np
import onnxruntime as ort

LAYERS, HEADS, BATCH = 6, 12, 4
session = ort.InferenceSession(graphs.decoder(LAYERS), providers=["CUDAExecutionProvider"])
past = {
    f"past_{what}_{layer}": ort.OrtValue.ortvalue_from_numpy(
        np.zeros((BATCH, HEADS, 0, 64), np.float16), "cuda", 0
    )
    for layer in range(LAYERS)
    for what in ("key", "value")
}
tokens = np.random.randint(0, 32000, (BATCH, 128))
for _ in range(32):
    binding = session.io_binding()
    binding.bind_cpu_input("tokens", tokens)
    for name, value in past.items():
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu" if output.name == "logits" else "cuda")
    session.run_with_iobinding(binding)
    logits, *presents = binding.get_outputs()
    tokens = logits.numpy()[:, -1:].argmax(-1)
    names = [output.name.replace("present", "past") for output in session.get_outputs()[1:]]
    past = dict(zip(names, presents, strict=True))
    print(f"{presents[0].shape()[2]} tokens")
