"""In the place of Weights & Biases, which programs log to: takes everything, keeps nothing, sends nothing."""

from __future__ import annotations


class Run:
    """What `wandb.init` returns: any attribute is there, any call and any setting is taken."""

    def __init__(self, *_, **__):
        self.config = type("Config", (dict,), {"__getattr__": dict.get, "update": lambda *_, **__: None})()
        self.summary = {}
        self.id = self.name = "run"
        self.dir = "."

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


run = None
config = Run().config


def init(*_, **__):
    """A run; `wandb.run` too."""
    global run  # noqa: PLW0603 (wandb's own name for it)
    run = Run()
    return run


class Image:
    """Takes what is to be shown; keeps nothing."""

    def __init__(self, *_, **__):
        pass


Histogram = Table = Video = Html = Artifact = Settings = Image


def log(*_, **__):
    """Logs nothing."""


finish = watch = save = login = define_metric = log_artifact = log
