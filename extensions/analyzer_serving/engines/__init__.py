"""The engines themselves, emulated: vLLM, SGLang."""
