/* The device's properties. Layouts: driver_types.h of CUDA 12.8 and 13.0, struct cudaDeviceProp; attribute numbers: enum
   cudaDeviceAttr there, which CUdevice_attribute (cuda.h) shares. */
#include "emulated.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t emulated_lock = PTHREAD_MUTEX_INITIALIZER;
/* Nothing here takes time; who computes a speed from these finds numbers, not this GPU's. */
enum { CLOCK_KHZ = 1000000, BUS_BITS = 1024 };
static Device device;
static pthread_once_t read_once = PTHREAD_ONCE_INIT;
static _Thread_local int current;

static void read_device(void) {
  const char *said = getenv("ANALYZER_EMULATED_DEVICE");
  char text[1024], *rest = text, *pair;
  snprintf(text, sizeof text, "%s", said ? said : "");
  device.count = device.peers = 1;
  while ((pair = strsep(&rest, ";"))) {
    char *equals = strchr(pair, '=');
    if (!equals) continue;
    *equals = 0;
    const char *value = equals + 1;
    uint64_t number = strtoull(value, 0, 10);
#define FIELD(field) if (!strcmp(pair, #field)) device.field = number
    FIELD(count); FIELD(multicast); FIELD(peers); FIELD(major); FIELD(minor); FIELD(cuda); FIELD(sm_count); FIELD(threads_per_sm); FIELD(blocks_per_sm);
    FIELD(shared_per_sm); FIELD(shared_per_block); FIELD(l2);
    FIELD(capacity); FIELD(listed); FIELD(driver); FIELD(context); FIELD(first_kernel); FIELD(cublas_code); FIELD(cudnn_code);
    FIELD(cusolver_code); FIELD(cufft_code); FIELD(kernels_code); FIELD(launched_code);
    FIELD(searched_code); FIELD(memset_code); FIELD(known);
    if (!strcmp(pair, "name")) snprintf(device.name, sizeof device.name, "%s", value);
  }
  if (device.listed < device.capacity) device.listed = device.capacity;
  if (device.count < 1) device.count = 1;
  if (device.count > DEVICES) device.count = DEVICES;
}
const Device *the_device(void) { pthread_once(&read_once, read_device); return &device; }
int current_device(void) { return current; }

/* CUDA 12 has a few more fields than 13; the order of the others is the same. */
#define PROPERTIES(PREFIX, ONLY12)                                                                                      \
  typedef struct {                                                                                                      \
    char name[256]; char uuid[16]; char luid[8]; unsigned luidDeviceNodeMask; size_t totalGlobalMem, sharedMemPerBlock; \
    int regsPerBlock, warpSize; size_t memPitch; int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];              \
    ONLY12(int clockRate;) size_t totalConstMem; int major, minor; size_t textureAlignment, texturePitchAlignment;      \
    ONLY12(int deviceOverlap;) int multiProcessorCount; ONLY12(int kernelExecTimeoutEnabled;) int integrated,           \
        canMapHostMemory; ONLY12(int computeMode;) int maxTexture1D, maxTexture1DMipmap; ONLY12(int maxTexture1DLinear;) \
    int maxTexture2D[2], maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3],          \
        maxTexture3DAlt[3], maxTextureCubemap, maxTexture1DLayered[2], maxTexture2DLayered[3],                          \
        maxTextureCubemapLayered[2], maxSurface1D, maxSurface2D[2], maxSurface3D[3], maxSurface1DLayered[2],            \
        maxSurface2DLayered[3], maxSurfaceCubemap, maxSurfaceCubemapLayered[2];                                         \
    size_t surfaceAlignment; int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver,          \
        asyncEngineCount, unifiedAddressing; ONLY12(int memoryClockRate;) int memoryBusWidth, l2CacheSize,              \
        persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported,       \
        localL1CacheSupported; size_t sharedMemPerMultiprocessor; int regsPerMultiprocessor, managedMemory,             \
        isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported; ONLY12(int singleToDoublePrecisionPerfRatio;) \
    int pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem,   \
        cooperativeLaunch; ONLY12(int cooperativeMultiDeviceLaunch;) size_t sharedMemPerBlockOptin;                     \
    int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor,             \
        accessPolicyMaxWindowSize; size_t reservedSharedMemPerBlock; int hostRegisterSupported, sparseCudaArraySupported, \
        hostRegisterReadOnlySupported, timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported; \
    unsigned gpuDirectRDMAFlushWritesOptions; int gpuDirectRDMAWritesOrdering; unsigned memoryPoolSupportedHandleTypes; \
    int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers, reserved[63];     \
  } PREFIX
#define KEPT(...) __VA_ARGS__
#define GONE(...)
PROPERTIES(Properties12, KEPT);
PROPERTIES(Properties13, GONE);

/* What NVIDIA's documents say of every GPU since compute capability 7.0 (CUDA C++ Programming Guide, "Technical
   Specifications per Compute Capability"): 64 Ki registers a block and a multiprocessor, 32 threads a warp. */
#define FILL(p)                                                                                                         \
  memset(p, 0, sizeof *p);                                                                                              \
  snprintf(p->name, sizeof p->name, "%s", d->name);                                                                     \
  memcpy(p->uuid, "emulated\0\0\0\0\0\0\0", 15); p->uuid[15] = (char)index;                                            \
  p->totalGlobalMem = d->capacity; p->sharedMemPerBlock = 49152; p->regsPerBlock = 65536; p->warpSize = 32;             \
  p->memPitch = 2147483647; p->maxThreadsPerBlock = 1024; p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;             \
  p->maxThreadsDim[2] = 64; p->maxGridSize[0] = 2147483647; p->maxGridSize[1] = p->maxGridSize[2] = 65535;              \
  p->totalConstMem = 65536; p->major = d->major; p->minor = d->minor; p->textureAlignment = 512;                        \
  p->texturePitchAlignment = 32; p->multiProcessorCount = d->sm_count; p->canMapHostMemory = 1;                         \
  p->surfaceAlignment = 512; p->concurrentKernels = 1; p->pciBusID = 1 + index; p->asyncEngineCount = 3;                \
  p->unifiedAddressing = 1; p->memoryBusWidth = BUS_BITS; p->l2CacheSize = d->l2;                                    \
  p->persistingL2CacheMaxSize = d->l2; p->maxThreadsPerMultiProcessor = d->threads_per_sm;                              \
  p->streamPrioritiesSupported = p->globalL1CacheSupported = p->localL1CacheSupported = 1;                              \
  p->sharedMemPerMultiprocessor = d->shared_per_sm; p->regsPerMultiprocessor = 65536; p->managedMemory = 1;             \
  p->concurrentManagedAccess = p->computePreemptionSupported = p->canUseHostPointerForRegisteredMem = 1;                \
  p->cooperativeLaunch = 1; p->sharedMemPerBlockOptin = d->shared_per_block;                                            \
  p->maxBlocksPerMultiProcessor = d->blocks_per_sm; p->reservedSharedMemPerBlock = 1024;                                \
  p->hostRegisterSupported = p->memoryPoolsSupported = p->ipcEventSupported = 1;                                        \
  p->memoryPoolSupportedHandleTypes = 1; p->clusterLaunch = d->major >= 9; p->unifiedFunctionPointers = 1

/* The symbol tells the layout: CUDA 12 asks for _v2, CUDA 13 dropped that name (cuda_runtime_api.h). */
ANSWER int cudaGetDeviceProperties_v2(Properties12 *p, int index) {
  const Device *d = the_device();
  if (index < 0 || index >= d->count) return fail(INVALID_DEVICE);
  FILL(p);
  p->clockRate = CLOCK_KHZ; p->memoryClockRate = CLOCK_KHZ; p->deviceOverlap = 1; p->cooperativeMultiDeviceLaunch = 1;
  return OK;
}
ANSWER int cudaGetDeviceProperties(Properties13 *p, int index) {
  const Device *d = the_device();
  if (index < 0 || index >= d->count) return fail(INVALID_DEVICE);
  FILL(p);
  return OK;
}
ANSWER size_t emulated_properties_bytes(int major) { return major >= 13 ? sizeof(Properties13) : sizeof(Properties12); }

/* enum cudaDeviceAttr / CUdevice_attribute. What is not listed here is answered "unsupported" (0). */
static int attribute(int which) {
  const Device *d = the_device();
  switch (which) {
    case 1: case 2: case 3: return 1024; /* threads a block; block x, y */
    case 4: return 64;
    case 5: return 2147483647;
    case 6: case 7: return 65535;
    case 8: return 49152; /* shared memory a block */
    case 9: return 65536; /* constant memory */
    case 10: return 32;
    case 11: return 2147483647;
    case 12: case 82: return 65536; /* registers a block, a multiprocessor */
    case 13: return CLOCK_KHZ;
    case 14: return 512;
    case 16: return d->sm_count;
    case 36: return CLOCK_KHZ;
    case 37: return BUS_BITS;
    case 38: case 108: return d->l2; /* and the largest persisting part of it */
    case 39: return d->threads_per_sm;
    case 40: return 3;
    case 15: case 19: case 31: case 41: case 78: case 79: case 80: case 83: case 89: case 90: case 91: case 95: return 1;
    case 33: return 1 + current_device(); /* PCI bus */
    case 75: return d->major;
    case 76: return d->minor;
    case 81: return d->shared_per_sm;
    case 97: return d->shared_per_block;
    case 102: return 1; /* virtual memory management */
    case 103: return 1; /* handles as file descriptors */
    case 106: return d->blocks_per_sm;
    case 111: return 1024;
    case 115: return 1; /* memory pools */
    case 120: return d->major >= 9; /* clusters */
    case 132: return d->multicast;
    default: return 0;
  }
}
ANSWER int cudaDeviceGetAttribute(int *value, int which, int index) {
  if (index < 0 || index >= the_device()->count) return fail(INVALID_DEVICE);
  *value = attribute(which);
  return OK;
}
ANSWER int cuDeviceGetAttribute(int *value, int which, int index) { return cudaDeviceGetAttribute(value, which, index); }

ANSWER int cudaGetDeviceCount(int *count) { *count = the_device()->count; return OK; }
ANSWER int cudaGetDevice(int *index) { *index = current; return OK; }
ANSWER int cudaSetDevice(int index) {
  if (index < 0 || index >= the_device()->count) return fail(INVALID_DEVICE);
  current = index;
  return OK;
}
ANSWER int cudaSetDeviceFlags(unsigned flags) { (void)flags; return OK; }
ANSWER int cudaGetDeviceFlags(unsigned *flags) { *flags = 0; return OK; }
ANSWER int cudaRuntimeGetVersion(int *version) { *version = the_device()->cuda; return OK; }
ANSWER int cudaDriverGetVersion(int *version) { *version = the_device()->cuda; return OK; }
ANSWER int cudaDeviceSynchronize(void) { return OK; }
ANSWER int cudaDeviceCanAccessPeer(int *can, int one, int other) { *can = one != other && the_device()->peers; return OK; }
ANSWER int cudaDeviceEnablePeerAccess(int other, unsigned flags) { (void)other; (void)flags; return OK; }
ANSWER int cudaDeviceGetPCIBusId(char *text, int size, int index) { snprintf(text, size, "0000:%02x:00.0", 1 + index); return OK; }
ANSWER int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return OK;
}
ANSWER int cudaProfilerStart(void) { return OK; }
ANSWER int cudaProfilerStop(void) { return OK; }

/* cuda.h */
ANSWER int cuInit(unsigned flags) { (void)flags; return OK; }
ANSWER int cuDriverGetVersion(int *version) { return cudaDriverGetVersion(version); }
ANSWER int cuDeviceGet(int *device, int index) {
  if (index < 0 || index >= the_device()->count) return INVALID_DEVICE;
  *device = index;
  return OK;
}
ANSWER int cuDeviceGetCount(int *count) { return cudaGetDeviceCount(count); }
ANSWER int cuDeviceGetName(char *name, int size, int index) { (void)index; snprintf(name, size, "%s", the_device()->name); return OK; }
ANSWER int cuDeviceTotalMem_v2(size_t *bytes, int index) { (void)index; *bytes = the_device()->capacity; return OK; }
ANSWER int cuDeviceGetUuid_v2(char *uuid, int index) { memcpy(uuid, "emulated\0\0\0\0\0\0\0", 15); uuid[15] = (char)index; return OK; }
ANSWER int cuDeviceGetUuid(char *uuid, int index) { return cuDeviceGetUuid_v2(uuid, index); }

/* A context is the device's number, as a pointer that is not null. */
ANSWER int cuDevicePrimaryCtxRetain(void **context, int index) { *context = (void *)(uintptr_t)(index + 1); return OK; }
ANSWER int cuDevicePrimaryCtxRelease_v2(int index) { (void)index; return OK; }
ANSWER int cuDevicePrimaryCtxGetState(int index, unsigned *flags, int *active) {
  if (flags) *flags = 0;
  if (active) *active = index == current || index == 0;
  return OK;
}
ANSWER int cuCtxGetCurrent(void **context) { *context = (void *)(uintptr_t)(current + 1); return OK; }
ANSWER int cuCtxSetCurrent(void *context) { if (context) current = (int)(uintptr_t)context - 1; return OK; }
ANSWER int cuCtxPushCurrent_v2(void *context) { return cuCtxSetCurrent(context); }
ANSWER int cuCtxPopCurrent_v2(void **context) { return context ? cuCtxGetCurrent(context) : OK; }
ANSWER int cuCtxGetDevice(int *device) { *device = current; return OK; }
ANSWER int cuCtxSynchronize(void) { return OK; }
/* CUlimit: 0 stack, 1 printf's buffer, 2 heap of kernels; the defaults the CUDA C++ Programming Guide gives. */
static size_t limits[3] = {1024, MIB, 8 * MIB};
ANSWER int cuCtxGetLimit(size_t *bytes, int which) {
  if (which < 0 || which > 2) return INVALID_VALUE;
  *bytes = limits[which];
  return OK;
}
ANSWER int cuCtxSetLimit(int which, size_t bytes) {
  if (which < 0 || which > 2) return INVALID_VALUE;
  limits[which] = bytes;
  return OK;
}
