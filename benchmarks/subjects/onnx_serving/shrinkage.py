"""The arena gives its memory back after each large request."""

import graphs
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession(
    graphs.encoder(4),
    providers=[("CUDAExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})],
)
shrinking = ort.RunOptions()
shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "gpu:0")
for length in (32, 512, 64, 1024, 64, 1024, 32):
    tokens = np.random.randint(0, 30000, (4, length))
    session.run(None, {"tokens": tokens}, shrinking if length > 256 else None)
    print(f"length {length}")
