/* The modules of the binaries that are loaded, the compute capability each has code for, and what its kernels need: what a library asks
   by cudaFuncGetAttributes decides its tile sizes (CUB's policies), and a device without code for it runs nothing.

   A fat binary (fatbinary_section.h: magic, version, pointer) is a header and entries: code (kind 2) runs on devices of its major
   version with at least its minor one, PTX (kind 1) on all that are newer. The layout of an entry is that read by open tools (cuda-fatbin-
   decompression, gdev): kind, header size, payload size, compute capability as 10 x major + minor in the seventh word. */
#include "emulated.h"
#include "images.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint32_t magic, version; const void *data; } Wrapper;
typedef struct { uint32_t magic; uint16_t version, header_bytes; uint64_t bytes; } Header;
typedef struct { uint16_t kind, version; uint32_t header_bytes; uint64_t bytes; uint32_t unread[3], capability; } Entry;
enum { WRAPPER = 0x466243b1, HEADER = 0xba55ed50, PTX = 1, CODE = 2 };

typedef struct { int capability; const Wrapper *binary; Image *image; } Module; /* image: once one of its kernels was launched */
typedef struct { const void *stub; const char *name; Module *module; } Kernel;
static Kernel *kernels;
static size_t kernel_count, kernel_room;
static int any_module, any_code;

/* The entry behind this one of a fat binary, the first for NULL; NULL: there is none. */
static const Entry *behind(const Header *header, const Entry *entry) {
  const char *first = (const char *)header + header->header_bytes, *end = first + header->bytes;
  const char *at = entry ? (const char *)entry + entry->header_bytes + entry->bytes : first;
  return (entry && !entry->header_bytes) || at + sizeof(Entry) > end ? NULL : (const Entry *)at;
}
/* The compute capability of what a device runs of a fat binary, 0 for nothing, as 10 x major + minor. */
static int runs(const Header *header) {
  const Device *d = the_device();
  int device = d->major * 10 + d->minor, code = 0, ptx = 0;
  for (const Entry *entry = NULL; (entry = behind(header, entry));) {
    int found = (int)entry->capability;
    if (entry->kind == CODE && found / 10 == d->major && found <= device && found > code) code = found;
    if (entry->kind == PTX && found <= device && found > ptx) ptx = found;
  }
  return code ? code : ptx;
}
static const Header *header_of(const Wrapper *binary) {
  const Header *header = binary && binary->magic == WRAPPER ? binary->data : NULL;
  return header && header->magic == HEADER ? header : NULL;
}
/* What a driver makes of PTX nobody knows before; nearest to it is code of the same kernels for the device before, or else for the next one. */
static int nearest_code(const Header *header, int capability) {
  int below = 0, above = 0;
  for (const Entry *entry = NULL; (entry = behind(header, entry));) {
    int found = (int)entry->capability;
    if (entry->kind != CODE) continue;
    if (found <= capability && found > below) below = found;
    if (found > capability && (!above || found < above)) above = found;
  }
  return below ? below : above;
}
static void read_code(Image *image, const Header *header, int capability) {
  int nearest = nearest_code(header, capability);
  for (const Entry *entry = NULL; (entry = behind(header, entry));)
    if (entry->kind == CODE && (int)entry->capability == nearest) image_add_entry(image, entry);
}

ANSWER void **__cudaRegisterFatBinary(void *binary) {
  const Device *d = the_device();
  Module *module = calloc(1, sizeof *module);
  if (!module) abort();
  module->binary = binary;
  module->capability = header_of(binary) ? runs(header_of(binary)) : d->major * 10 + d->minor;
  LOCKED { any_module = 1; any_code |= module->capability; }
  return (void **)module;
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
    kernels[kernel_count++] = (Kernel){.stub = stub, .name = name, .module = (Module *)handle};
  }
}

/* Few ask, so nothing is sorted. */
static Kernel *known(const void *stub) {
  for (size_t i = 0; i < kernel_count; i++)
    if (kernels[i].stub == stub) return &kernels[i];
  return NULL;
}
static Kernel *registered(const void *stub) {
  Kernel *found;
  LOCKED found = known(stub);
  return found;
}

/* A kernel nobody registered is code for the device itself. */
int capability_of(const void *stub) {
  const Device *d = the_device();
  const Kernel *kernel = registered(stub);
  return kernel ? kernel->module->capability : d->major * 10 + d->minor;
}

int nothing_runs(void) { return any_module && !any_code; }

/* -- what kernels need, by their stub or the driver's handle ---------------------------------------------------------------- */

typedef struct { const void *kernel; Needs needs; } Needed;
static Needed *needed; /* open addressing: empty where there is no kernel */
static size_t needed_count, needed_room;
static Needed *slot(const void *kernel) {
  size_t at = (size_t)(((uint64_t)(uintptr_t)kernel >> 3) * 0x9e3779b97f4a7c15ull >> 32) % needed_room;
  while (needed[at].kernel && needed[at].kernel != kernel) at = (at + 1) % needed_room;
  return &needed[at];
}
static void remember(const void *kernel, Needs needs) {
  if (2 * needed_count >= needed_room) {
    Needed *before = needed;
    size_t had = needed_room;
    needed_room = had ? 2 * had : 1024;
    needed = calloc(needed_room, sizeof *needed);
    if (!needed) abort();
    for (size_t i = 0; i < had; i++) if (before[i].kernel) *slot(before[i].kernel) = before[i];
    free(before);
  }
  Needed *at = slot(kernel);
  needed_count += !at->kernel;
  *at = (Needed){kernel, needs};
}
Needs needs_of(const void *stub) {
  if (!stub) return (Needs){0, 0, 0};
  if (needed_room && slot(stub)->kernel) return slot(stub)->needs;
  const Kernel *kernel = known(stub);
  Needs needs = {0, 0, 0};
  if (kernel) {
    Module *module = kernel->module;
    if (!module->image) {
      module->image = image_new();
      if (header_of(module->binary)) read_code(module->image, header_of(module->binary), module->capability);
    }
    needs = image_needs(module->image, kernel->name);
  }
  remember(stub, needs);
  return needs;
}

/* -- the driver's modules: code compiled while the program runs (NVRTC, Triton) ---------------------------------------------- */

ANSWER int cuModuleLoadData(void **module, const void *code) { /* a cubin, a fat binary or PTX */
  const Header *header = code;
  if (!header) return INVALID_VALUE;
  Image *image = image_new();
  if (header->magic == HEADER) read_code(image, header, runs(header));
  else image_add(image, code, 0);
  *module = image;
  return OK;
}
ANSWER int cuModuleLoadDataEx(void **module, const void *code, unsigned count, void *options, void **values) {
  (void)count; (void)options; (void)values;
  return cuModuleLoadData(module, code);
}
ANSWER int cuModuleLoad(void **module, const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return FILE_NOT_FOUND;
  long bytes = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
  void *code = bytes < 0 ? NULL : calloc((size_t)bytes + 64, 1);
  rewind(file);
  int read = code && fread(code, 1, (size_t)bytes, file) == (size_t)bytes;
  fclose(file);
  int found = read ? cuModuleLoadData(module, code) : INVALID_VALUE;
  free(code);
  return found;
}
ANSWER int cuModuleUnload(void *module) { image_free(module); return OK; }
ANSWER int cuModuleGetFunction(void **kernel, void *module, const char *name) {
  *kernel = new_handle();
  LOCKED remember(*kernel, image_needs(module, name));
  return OK;
}
