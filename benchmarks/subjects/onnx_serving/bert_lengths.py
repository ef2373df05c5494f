"""Sentences of many lengths, one request each."""

import graphs
import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.enable_mem_pattern = False  # which shapes that vary make useless
session = ort.InferenceSession(
    graphs.encoder(), options, providers=[("CUDAExecutionProvider", {"device_id": 0})]
)
lengths = np.random.default_rng(0).permutation(np.arange(16, 513, 31))
for length in map(int, lengths):
    tokens = np.random.randint(0, 30000, (8, length))
    (hidden,) = session.run(["hidden"], {"tokens": tokens})
    print(f"length {length}: {hidden.shape}")
