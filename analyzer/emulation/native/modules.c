/* The modules of the binaries that are loaded, and the compute capability each has code for: what a library asks by
   cudaFuncGetAttributes decides its tile sizes (CUB's policies), and a device without code for it runs nothing.

   A fat binary (fatbinary_section.h: magic, version, pointer) is a header and entries: code (kind 2) runs on devices of its major
   version with at least its minor one, PTX (kind 1) on all that are newer. The layout of an entry is that read by open tools (cuda-fatbin-
   decompression, gdev): kind, header size, payload size, compute capability as 10 x major + minor in the seventh word. */
#define _GNU_SOURCE
#include "emulated.h"
#include "question.h"
#include <dlfcn.h>
#include <stdlib.h>

typedef struct { uint32_t magic, version; const void *data; } Wrapper;
typedef struct { uint32_t magic; uint16_t version, header_bytes; uint64_t bytes; } Header;
typedef struct { uint16_t kind, version; uint32_t header_bytes; uint64_t bytes; uint32_t unread[3], capability; } Entry;
enum { WRAPPER = 0x466243b1, HEADER = 0xba55ed50, PTX = 1, CODE = 2 };

typedef struct { const void *stub; const char *name; const int *capability; int asked, registers, shared; } Kernel;
static Kernel *kernels;
static size_t kernel_count, kernel_room;
static int any_module, any_code;

/* The compute capability of what a device runs of a fat binary, 0 for nothing, as 10 x major + minor. */
static int runs(const Wrapper *binary) {
  const Device *d = the_device();
  int device = d->major * 10 + d->minor, code = 0, ptx = 0;
  if (!binary || binary->magic != WRAPPER || !binary->data || ((const Header *)binary->data)->magic != HEADER) return device;
  const Header *header = binary->data;
  const char *at = (const char *)header + header->header_bytes, *end = at + header->bytes;
  while (at + sizeof(Entry) <= end) {
    const Entry *entry = (const Entry *)at;
    int found = (int)entry->capability;
    if (entry->kind == CODE && found / 10 == d->major && found <= device && found > code) code = found;
    if (entry->kind == PTX && found <= device && found > ptx) ptx = found;
    if (!entry->header_bytes) break;
    at += entry->header_bytes + entry->bytes;
  }
  return code ? code : ptx;
}

ANSWER void **__cudaRegisterFatBinary(void *binary) {
  int *capability = malloc(sizeof *capability);
  if (!capability) abort();
  *capability = runs(binary);
  LOCKED { any_module = 1; any_code |= *capability; }
  return (void **)capability;
}
ANSWER void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
ANSWER void __cudaUnregisterFatBinary(void **handle) { (void)handle; } /* its kernels may still be asked for */
ANSWER char __cudaInitModule(void **handle) { (void)handle; return 1; }
ANSWER void __cudaRegisterFunction(void **handle, const char *stub, char *device, const char *name) {
  (void)device;
  LOCKED {
    if (kernel_count == kernel_room) {
      kernel_room = kernel_room ? 2 * kernel_room : 65536;
      kernels = realloc(kernels, kernel_room * sizeof *kernels);
      if (!kernels) abort();
    }
    kernels[kernel_count++] = (Kernel){.stub = stub, .name = name, .capability = (const int *)handle};
  }
}

/* Few ask, so nothing is sorted. */
static Kernel *registered(const void *stub) {
  Kernel *found = NULL;
  LOCKED for (size_t i = 0; i < kernel_count && !found; i++)
    if (kernels[i].stub == stub) found = &kernels[i];
  return found;
}

/* A kernel nobody registered is code for the device itself. */
int capability_of(const void *stub) {
  const Device *d = the_device();
  const Kernel *kernel = registered(stub);
  return kernel ? *kernel->capability : d->major * 10 + d->minor;
}

/* Read from the binary (analyzer/emulation/kernels.py); where nobody can, 32 registers and no shared memory. */
void resources_of(const void *stub, int *registers, int *shared) {
  Kernel *kernel = registered(stub);
  Dl_info place;
  *registers = 32;
  *shared = 0;
  if (!kernel || !dladdr(stub, &place)) return;
  if (!kernel->asked) {
    struct line line = {0};
    int64_t *numbers = NULL;
    line_add(&line, "{\"about\":\"kernel\",\"library\":\"%s\",\"name\":\"%s\",\"capability\":%d}", place.dli_fname, kernel->name,
             *kernel->capability);
    int known = question_ask(&line, &numbers) == 2;
    kernel->registers = known ? (int)numbers[0] : *registers;
    kernel->shared = known ? (int)numbers[1] : *shared;
    kernel->asked = 1;
    free(numbers);
  }
  *registers = kernel->registers;
  *shared = kernel->shared;
}
int nothing_runs(void) { return any_module && !any_code; }
