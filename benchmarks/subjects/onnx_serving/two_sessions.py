"""An image and a text network in one process, each with an arena of its own."""

import graphs
import numpy as np
import onnxruntime as ort

providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
images = ort.InferenceSession(graphs.resnet((2, 2, 2, 2)), providers=providers)
texts = ort.InferenceSession(graphs.encoder(4), providers=providers)
for batch in (4, 16, 8, 32):
    images.run(None, {"images": np.random.rand(batch, 3, 224, 224).astype(np.float32)})
    texts.run(None, {"tokens": np.random.randint(0, 30000, (batch, 128))})
    print(f"batch {batch}")
del texts
images.run(None, {"images": np.random.rand(4, 3, 224, 224).astype(np.float32)})
print("the text network is gone")
