"""The error of a program that nothing keeps from writing."""


class UnprotectedError(Exception):
    """Nothing but Python's functions would be kept from writing, and nobody said that this is enough. Its
    arguments: a message and a hint."""

    def __init__(self) -> None:
        super().__init__(
            "nothing here keeps a program from writing: neither namespaces nor Landlock are allowed",
            "allow them (a container's seccomp profile decides), or add --unprotected (unprotected=True):"
            " then only Python's functions are redirected, and processes it starts change what they will",
        )
