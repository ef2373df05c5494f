"""A way to change files: a function of a folder, which changes what is in it and reads it back."""

WAYS = []


def t(way):
    """List a way."""
    WAYS.append(way)
    return way


def rd(path, mode="r"):
    """Return what a file holds."""
    with open(path, mode) as file:
        return file.read()


def _w(p, s):
    open(p, "w").write(s)


class _DS:
    def __init__(self, d):
        self.d = d

    def __len__(self):
        return 8

    def __getitem__(self, i):
        import torch.utils.data as D

        open(self.d + f"/w{D.get_worker_info().id}", "a").write(str(i))
        return i
