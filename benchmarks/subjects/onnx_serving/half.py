"""Half precision, two models on one arena that the environment owns."""

import graphs
import numpy as np
import onnxruntime as ort

memory = ort.OrtMemoryInfo("Cuda", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
options = ort.SessionOptions()
options.add_session_config_entry("session.use_env_allocators", "1")
arena = ort.OrtArenaCfg({"max_mem": 4 * 2**30, "arena_extend_strategy": 0})
ort.create_and_register_allocator_v2("CUDAExecutionProvider", memory, {}, arena)
providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
images = ort.InferenceSession(graphs.resnet(dtype=np.float16), options, providers=providers)
texts = ort.InferenceSession(graphs.encoder(dtype=np.float16), options, providers=providers)
for batch, length in ((4, 64), (16, 128), (32, 256), (8, 64)):
    images.run(None, {"images": np.random.rand(batch, 3, 224, 224).astype(np.float16)})
    texts.run(None, {"tokens": np.random.randint(0, 30000, (batch, length))})
    print(f"batch {batch}, length {length}")
