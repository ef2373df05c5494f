"""Every shape of a model at the batch asked for: bound, inferred, or bounded and said so."""
