/* Kernels are launched, and do nothing. What is asked of them (occupancy, attributes) is answered from what a multiprocessor
   holds and from what their binaries say (modules.c). */
#include "emulated.h"
#include "images.h"
#include <string.h>

enum { REGISTERS = 65536, /* of a multiprocessor, since compute capability 5.0 */ UNKNOWN_REGISTERS = 32 /* of a kernel that nobody reads: PTX */ };

typedef struct { unsigned x, y, z; } Dim3;
static _Thread_local struct { Dim3 grid, block; size_t shared; void *stream; } call;
static uint64_t launch_count;

static int launched(const void *kernel, void *stream) {
  int has_room;
  if (nothing_runs()) return fail(NO_KERNEL_IMAGE);
  LOCKED {
    launch_count++;
    process_launches(1);
    process_kernel();
    has_room = process_local((uint64_t)needs_of(kernel).local);
  }
  if (!has_room) return fail(OUT_OF_MEMORY);
  captured(stream);
  return OK;
}
ANSWER uint64_t emulated_launch_count(void) { return launch_count; }

ANSWER unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, void *stream) {
  call.grid = grid; call.block = block; call.shared = shared; call.stream = stream;
  return 0;
}
ANSWER int __cudaPopCallConfiguration(Dim3 *grid, Dim3 *block, size_t *shared, void **stream) {
  *grid = call.grid; *block = call.block; *shared = call.shared; *stream = call.stream;
  return OK;
}
/* crt/host_runtime.h of CUDA 13: a kernel is known by the address of its stub. */
ANSWER int __cudaGetKernel(void **kernel, const void *stub) { *kernel = (void *)stub; return OK; }
ANSWER int cudaGetKernel(void **kernel, const void *stub) { *kernel = (void *)stub; return OK; }
ANSWER int __cudaLaunchKernel(void *kernel, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream) {
  (void)grid; (void)block; (void)arguments; (void)shared;
  return launched(kernel, stream);
}
ANSWER int cudaLaunchKernel(const void *stub, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream) {
  return __cudaLaunchKernel((void *)stub, grid, block, arguments, shared, stream);
}
ANSWER int cudaLaunchCooperativeKernel(const void *stub, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream) {
  return __cudaLaunchKernel((void *)stub, grid, block, arguments, shared, stream);
}
typedef struct { Dim3 grid, block; size_t shared; void *stream; } Launch; /* the beginning of cudaLaunchConfig_t */
ANSWER int cudaLaunchKernelExC(const Launch *how, const void *stub, void **arguments) { (void)arguments; return launched(stub, how->stream); }

/* Variables of the device: an address of their own, 512 B each. */
#define VARIABLES 4096
static struct { const void *host; uint64_t address; size_t bytes; } variables[VARIABLES];
static size_t variable_count;
ANSWER void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes) {
  (void)handle; (void)device; (void)name; (void)external;
  LOCKED { if (variable_count < VARIABLES) { variables[variable_count].bytes = bytes; variables[variable_count++].host = host; } }
}
ANSWER int cudaGetSymbolAddress(void **address, const void *symbol) {
  int code = INVALID_VALUE;
  LOCKED for (size_t i = 0; i < variable_count; i++)
    if (variables[i].host == symbol) {
      if (!variables[i].address) variables[i].address = (1ull << 44) + i * 0x100000;
      *address = (void *)(uintptr_t)variables[i].address;
      code = OK;
    }
  return code ? fail(code) : OK;
}
ANSWER int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int kind) {
  (void)symbol; (void)from; (void)bytes; (void)offset; (void)kind;
  return OK;
}

/* struct cudaFuncAttributes (driver_types.h), alike in CUDA 12 and 13. */
typedef struct {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes, preferredShmemCarveout,
      clusterDimMustBeSet, requiredClusterWidth, requiredClusterHeight, requiredClusterDepth, clusterSchedulingPolicyPreference,
      nonPortableClusterSizeAllowed, reserved[16];
} FuncAttributes;
ANSWER int cudaFuncGetAttributes(FuncAttributes *found, const void *stub) {
  *found = (FuncAttributes){.maxThreadsPerBlock = 1024, .numRegs = 32, .maxDynamicSharedSizeBytes = 49152};
  found->ptxVersion = found->binaryVersion = capability_of(stub);
  return found->ptxVersion ? OK : fail(NO_KERNEL_IMAGE);
}
ANSWER int cudaFuncSetAttribute(const void *stub, int which, int value) { (void)stub; (void)which; (void)value; return OK; }

static size_t rounded(size_t value, size_t step) { return (value + step - 1) / step * step; }

/* Blocks that a multiprocessor runs at once: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and the
   allocation granularities of NVIDIA's occupancy calculator: registers by 256 a warp and in fours of warps, shared memory by 128 bytes (256
   before 8.0), of which the system has 1 KiB a block (since 8.0). */
static int blocks(int threads, int registers, size_t shared) {
  const Device *d = the_device();
  int warps = (threads + 31) / 32, found = warps ? d->threads_per_sm / (32 * warps) : 0;
  if (found > d->blocks_per_sm) found = d->blocks_per_sm;
  if (warps && registers) {
    int held = REGISTERS / (int)rounded((size_t)registers * 32, 256) / 4 * 4 / warps;
    if (found > held) found = held;
  }
  size_t taken = rounded(shared, d->major >= 8 ? 128 : 256) + (d->major >= 8 ? 1024 : 0);
  if (shared && (size_t)found > d->shared_per_sm / taken) found = (int)(d->shared_per_sm / taken);
  return found;
}
ANSWER int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *count, const void *stub, int threads, size_t shared) {
  Needs needs;
  LOCKED needs = needs_of(stub);
  *count = blocks(threads, needs.registers ? needs.registers : UNKNOWN_REGISTERS, shared + (size_t)needs.shared);
  return OK;
}
ANSWER int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, const void *stub, int threads, size_t shared, unsigned flags) {
  (void)flags;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(count, stub, threads, shared);
}
ANSWER int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, void *kernel, int threads, size_t shared) { (void)kernel; *count = blocks(threads, UNKNOWN_REGISTERS, shared); return OK; }
ANSWER int cuOccupancyMaxActiveClusters(int *count, void *kernel, const void *how) { (void)kernel; (void)how; *count = the_device()->sm_count / 16; return OK; }

/* -- the driver's kernels, of modules (modules.c) ----------------------------------------------------------------------------- */
/* CUfunction_attribute: 0 threads a block, 1 shared, 2 constant, 3 local, 4 registers, 5 PTX, 6 binary, 8 dynamic shared. */
ANSWER int cuFuncGetAttribute(int *value, int which, void *kernel) {
  const Device *d = the_device();
  Needs needs;
  LOCKED needs = needs_of(kernel);
  *value = which == 0 ? 1024 : which == 3 ? needs.local : which == 4 ? (needs.registers ? needs.registers : UNKNOWN_REGISTERS) : which == 5 || which == 6 ? d->major * 10 + d->minor : which == 8 ? d->shared_per_block : 0;
  return OK;
}
ANSWER int cuFuncSetAttribute(void *kernel, int which, int value) { (void)kernel; (void)which; (void)value; return OK; }
ANSWER int cuFuncSetCacheConfig(void *kernel, int which) { (void)kernel; (void)which; return OK; }
ANSWER int cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **arguments, void **extra) {
  (void)gx; (void)gy; (void)gz; (void)bx; (void)by; (void)bz; (void)shared; (void)arguments; (void)extra;
  return launched(kernel, stream);
}
ANSWER int cuLaunchCooperativeKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **arguments) {
  return cuLaunchKernel(kernel, gx, gy, gz, bx, by, bz, shared, stream, arguments, NULL);
}
typedef struct { unsigned gx, gy, gz, bx, by, bz, shared; void *stream; } DriverLaunch; /* the beginning of CUlaunchConfig */
ANSWER int cuLaunchKernelEx(const DriverLaunch *how, void *kernel, void **arguments, void **extra) { (void)arguments; (void)extra; return launched(kernel, how->stream); }
/* A tensor map describes memory to a kernel: 128 bytes nobody reads here. */
ANSWER int cuTensorMapEncodeTiled(void *map) { memset(map, 0, 128); return OK; }
