"""A limit for the arena; a request that is too large is refused, the next ones are served."""

import graphs
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession(
    graphs.resnet(),
    providers=[
        (
            "CUDAExecutionProvider",
            {
                "gpu_mem_limit": 1024 * 1024 * 1024,
                "arena_extend_strategy": "kSameAsRequested",
                "cudnn_conv_algo_search": "HEURISTIC",
            },
        ),
        "CPUExecutionProvider",
    ],
)
for batch in (4, 16, 32, 256, 8, 32):
    images = np.random.rand(batch, 3, 224, 224).astype(np.float32)
    try:
        session.run(None, {"images": images})
        print(f"batch {batch}: served")
    except Exception as error:
        print(f"batch {batch}: refused: {str(error)[:200]}")
