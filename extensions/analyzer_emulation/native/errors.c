/* Errors, and the ways to look functions up by name. */
#define _GNU_SOURCE
#include "emulated.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static _Thread_local int last;
int fail(int code) { return last = code; }
ANSWER int cudaGetLastError(void) { int code = last; last = OK; return code; }
ANSWER int cudaPeekAtLastError(void) { return last; }
/* The names and texts are those of the documentation (cudaError_t). */
static const struct { int code; const char *name, *text; } errors[] = {
    {OK, "cudaSuccess", "no error"},
    {INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument"},
    {OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
    {INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {NO_KERNEL_IMAGE, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
    {NOT_READY, "cudaErrorNotReady", "device not ready"},
    {GRAPH_UPDATE_FAILURE, "cudaErrorGraphExecUpdateFailure", "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update"},
    {NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported: a function that is not emulated was called"},
};
static int known_error(int code) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) if (errors[i].code == code) return (int)i;
  return -1;
}
ANSWER const char *cudaGetErrorString(int code) { int i = known_error(code); return i < 0 ? "unrecognized error code" : errors[i].text; }
ANSWER const char *cudaGetErrorName(int code) { int i = known_error(code); return i < 0 ? "unrecognized error code" : errors[i].name; }
ANSWER int cuGetErrorString(int code, const char **text) { *text = cudaGetErrorString(code); return OK; }
ANSWER int cuGetErrorName(int code, const char **name) { *name = cudaGetErrorName(code); return OK; }

/* -- functions without an answer -------------------------------------------------------------------------------------- */
#define NAMES 64
static const char *names[NAMES];
static int name_count;
void refused(const char *name) {
  int seen = 0;
  LOCKED {
    for (int i = 0; i < name_count; i++) seen |= !strcmp(names[i], name);
    if (!seen && name_count < NAMES) names[name_count++] = name;
  }
  if (!seen) fprintf(stderr, "analyze emulate: the program called %s, which is not emulated\n", name);
}
ANSWER const char *emulated_refused(int index) { return index < name_count ? names[index] : NULL; }
/* Each answers with its library's "not supported" (cublas_api.h, cusolver_common.h, cusparse.h, cufft.h, nccl.h, cudnn.h). */
#ifndef REFUSED /* benchmarks/emulation/interface.py wants the others */
#define REFUSED(name, code) ANSWER int name(void) { refused(#name); return code; }
#endif
#include "refused.inc"

/* -- looked up by name: only what is exported here is found ----------------------------------------------------------- */
static void *own(const char *name) {
  static void *self;
  Dl_info here;
  if (!self && dladdr((void *)own, &here)) self = dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  char versioned[128];
  for (int version = 1; self && version < 4; version++) {
    if (version == 1) snprintf(versioned, sizeof versioned, "%s", name);
    else snprintf(versioned, sizeof versioned, "%s_v%d", name, version);
    void *found = dlsym(self, versioned);
    if (found) return found;
  }
  return NULL;
}
/* Tables of functions nobody documents: libraries that ask for it by name go without. NVRTC does for its cache on disk, but looks for it in the
   driver's file, and reads at address 0 where it is not there (`[nvrtc cache]` among its strings). */
ANSWER int cuGetExportTable(const void **table, const void *id) { (void)id; *table = NULL; return 500; /* CUDA_ERROR_NOT_FOUND */ }
static int looked_up(const char *name, void **function, int *status) {
  *function = strcmp(name, "cuGetExportTable") ? own(name) : NULL;
  if (status) *status = *function ? 0 : 1; /* cudaDriverEntryPointSymbolNotFound */
  return *function ? OK : status ? OK : 500; /* CUDA_ERROR_NOT_FOUND */
}
ANSWER int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status) { (void)flags; return looked_up(name, function, status); }
ANSWER int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags, int *status) { (void)version; (void)flags; return looked_up(name, function, status); }
ANSWER int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) { (void)version; (void)flags; return looked_up(name, function, status); }
ANSWER int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) { (void)version; (void)flags; return looked_up(name, function, NULL); }
