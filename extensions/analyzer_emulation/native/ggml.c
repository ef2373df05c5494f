/* What of ggml works on the host: its kernels there compute nothing either, so that a layer for which a GPU has no room costs no time, and a
   file of weights is mapped without its pages.

   1. Libraries ask for these functions by their symbols, and find them here first (ggml/include/ggml-cpu.h, ggml-backend.h; 0 is GGML_STATUS_SUCCESS).
      Buffers, and the scratch of its threads, are made before. The host's are not cleared, since nobody reads them: pages nobody touched are
      the kernel's to give.
   2. llama.cpp maps its file with MAP_POPULATE (src/llama-mmap.cpp): every page would be read. */
#define _GNU_SOURCE
#include "emulated.h"
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

ANSWER int ggml_graph_compute(void *graph, void *plan) { (void)graph; (void)plan; return OK; }
ANSWER void ggml_backend_buffer_clear(void *buffer, uint8_t value) {
  _Bool (*is_host)(void *) = (_Bool (*)(void *))dlsym(RTLD_DEFAULT, "ggml_backend_buffer_is_host");
  void (*clear)(void *, uint8_t) = (void (*)(void *, uint8_t))dlsym(RTLD_NEXT, "ggml_backend_buffer_clear");
  if (clear && !(is_host && is_host(buffer))) clear(buffer, value);
}

ANSWER void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (file >= 0) flags &= ~MAP_POPULATE;
  return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}
ANSWER void *mmap64(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  return mmap(address, bytes, protection, flags, file, offset);
}
