"""The driver's addresses in a process from its start: what its context leaves free, and what its first
kernels take.

A program that asks for memory before it has run a kernel finds other holes than one that has, and what its
first kernels need besides goes into holes of the same address space, so that where segments lie depends on
when they run.

1. The context leaves two holes, the ends of two chunks: 2 MiB and, 74 MiB above it, 24 MiB.
2. The first kernel of all takes a page of 2 MiB.
3. With the first whose threads need memory of their own (`KernelNeeds.STACK`), 26 MiB are taken, and then the
   414 MiB below the hole of 2 MiB are free: the driver has moved what every thread could use. Where nothing
   lies in that hole, the whole chunk is free, and its range soon serves libraries.
4. The first that may stop the program by an assertion takes 10 MiB (the heap of kernels and what they print
   to).
5. A cuBLAS handle takes 64 MiB, cuDNN five pages for each thread that uses it, the first of either in a
   process one page more.

Source: `tests/data/h200/driver_holes.json.gz`, every hole of the address space before and after the steps of
small programs (H200, driver 580, torch 2.11). That 26, 414 and 10 MiB are what
rules 3 and 4 call them is inferred from which kernels bring them; their sizes are measured.
Not modelled: code of further kernels (a page each, now and then), pinned memory of the host, which lies in
the same address space.
"""

from __future__ import annotations

from enum import Enum

from analyzer.allocators.driver import MIB, ORIGIN, PAGE_BYTES, AddressSpace, Leftover

CONTEXT_LEFTOVER = Leftover(((ORIGIN, PAGE_BYTES), (ORIGIN + 74 * MIB, 24 * MIB)))
_MOVED_BYTES = 414 * MIB
_STACK_BYTES = 26 * MIB
_HEAP_BYTES = 10 * MIB
_CUBLAS_BYTES = 64 * MIB
_CUDNN_PAGES = 5


class KernelNeeds(Enum):
    """Driver memory a kernel needs: none, stack memory for each thread, or also the kernels' heap."""

    PLAIN = 1
    STACK = 2
    ASSERTING = 3


_LAST = KernelNeeds.ASSERTING.value


class Process(AddressSpace):
    """An `AddressSpace` that is told what runs in its process, whose memory is not in `page_bytes`."""

    def __init__(self) -> None:
        super().__init__(CONTEXT_LEFTOVER)
        self._lowest = ORIGIN - _MOVED_BYTES
        self._chunks[self._lowest] = _MOVED_BYTES + PAGE_BYTES
        self._had = 0
        self._has_handle = False

    @property
    def computed(self) -> bool:
        """Whether a kernel of PyTorch's own ran."""
        return self._had > 0

    @property
    def settled(self) -> bool:
        """Whether no kernel of PyTorch's own takes anything any more."""
        return self._had == _LAST

    def launch(self, kernel: KernelNeeds) -> None:
        """Run a kernel: take the driver memory it needs and no earlier kernel has taken."""
        had, self._had = self._had, max(self._had, kernel.value)
        if had < KernelNeeds.PLAIN.value:
            self._pages(PAGE_BYTES)
        if had < KernelNeeds.STACK.value <= self._had:
            self._pages(_STACK_BYTES)
            if CONTEXT_LEFTOVER.holes[0] in self._holes:  # libraries open their chunks in the whole range
                self._holes.remove(CONTEXT_LEFTOVER.holes[0])
            else:
                self._free(ORIGIN - _MOVED_BYTES, _MOVED_BYTES)
        if had < KernelNeeds.ASSERTING.value <= self._had:
            self._pages(_HEAP_BYTES)

    def cublas(self) -> None:
        """Take the memory of a new cuBLAS handle for a stream."""
        self._handle()
        self._pages(_CUBLAS_BYTES)

    def cudnn(self) -> None:
        """Take the memory of a thread's first use of cuDNN."""
        self._handle()
        for _ in range(_CUDNN_PAGES):
            self._pages(PAGE_BYTES)

    def _handle(self) -> None:
        self.launch(KernelNeeds.PLAIN)
        if not self._has_handle:
            self._has_handle = True
            self._pages(PAGE_BYTES)
