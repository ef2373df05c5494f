"""One size, as a CUDA graph: inputs and outputs at fixed places."""

import graphs
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession(
    graphs.resnet(), providers=[("CUDAExecutionProvider", {"enable_cuda_graph": "1"})]
)
images = ort.OrtValue.ortvalue_from_numpy(np.random.rand(8, 3, 224, 224).astype(np.float32), "cuda", 0)
logits = ort.OrtValue.ortvalue_from_numpy(np.zeros((8, 1000), np.float32), "cuda", 0)
binding = session.io_binding()
binding.bind_ortvalue_input("images", images)
binding.bind_ortvalue_output("logits", logits)
for number in range(5):
    images.update_inplace(np.random.rand(8, 3, 224, 224).astype(np.float32))
    session.run_with_iobinding(binding)
    print(f"request {number}: {logits.numpy().shape}")
