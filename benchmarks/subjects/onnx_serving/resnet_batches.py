"""An image server whose batches grow, and are small again."""

import graphs
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession(graphs.resnet(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
for batch in (1, 2, 4, 8, 16, 32, 64, 8, 1):
    images = np.random.rand(batch, 3, 224, 224).astype(np.float32)
    (logits,) = session.run(None, {"images": images})
    print(f"batch {batch}: {logits.shape}")
