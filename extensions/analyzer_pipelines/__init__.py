"""Diffusion pipelines: built from their configurations, followed, and told by stage."""
