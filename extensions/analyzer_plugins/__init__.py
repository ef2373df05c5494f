"""PaddlePaddle and TensorFlow as runtimes, which the entry point "analyzer.runtimes" announces."""
