/* NVML, the library behind nvidia-smi (nvml.h): the same device, and one process on it, this one. */
#include "emulated.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

uint64_t emulated_used_bytes(int device);
#define INDEX(handle) ((int)(uintptr_t)(handle)-1)
enum { NVML_INVALID_ARGUMENT = 2, NVML_NOT_SUPPORTED = 3, NVML_INSUFFICIENT_SIZE = 7 };

ANSWER int nvmlInit_v2(void) { return OK; }
ANSWER int nvmlInit(void) { return OK; }
ANSWER int nvmlInitWithFlags(unsigned flags) { (void)flags; return OK; }
ANSWER int nvmlShutdown(void) { return OK; }
ANSWER const char *nvmlErrorString(int code) { return code ? "not supported by the emulated device" : "The operation was successful"; }
ANSWER int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)the_device()->count; return OK; }
ANSWER int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if ((int)index >= the_device()->count) return NVML_INVALID_ARGUMENT;
  *handle = (void *)(uintptr_t)(index + 1);
  return OK;
}
ANSWER int nvmlDeviceGetHandleByPciBusId_v2(const char *text, void **handle) {
  unsigned domain = 0, bus = 1;
  if (sscanf(text, "%x:%x:", &domain, &bus) != 2 || !bus) return NVML_INVALID_ARGUMENT;
  return nvmlDeviceGetHandleByIndex_v2(bus - 1, handle);
}
ANSWER int nvmlDeviceGetIndex(void *handle, unsigned *index) { *index = (unsigned)INDEX(handle); return OK; }
ANSWER int nvmlDeviceGetName(void *handle, char *name, unsigned size) { (void)handle; snprintf(name, size, "%s", the_device()->name); return OK; }
ANSWER int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) { /* the bytes of cudaDeviceProp.uuid */
  snprintf(text, size, "GPU-656d756c-6174-6564-0000-0000000000%02x", INDEX(handle));
  return OK;
}
ANSWER int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) { (void)handle; *major = the_device()->major; *minor = the_device()->minor; return OK; }
/* NVML's total is all the memory; of it the driver keeps what CUDA has not to give, which the first version counts as used. */
typedef struct { unsigned long long total, available, used; } Memory;
ANSWER int nvmlDeviceGetMemoryInfo(void *handle, Memory *m) {
  const Device *d = the_device();
  uint64_t used;
  LOCKED used = d->driver + emulated_used_bytes(INDEX(handle));
  m->total = d->listed;
  m->available = d->capacity > used ? d->capacity - used : 0;
  m->used = m->total - m->available;
  return OK;
}
typedef struct { unsigned version; unsigned long long total, reserved, available, used; } Memory2;
ANSWER int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory2 *m) {
  Memory one;
  nvmlDeviceGetMemoryInfo(handle, &one);
  m->total = one.total; m->reserved = one.total - the_device()->capacity; m->available = one.available;
  m->used = one.used - m->reserved;
  return OK;
}
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpuInstance, computeInstance; } Running;
ANSWER int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Running *found) {
  if (!*count) { *count = 1; return NVML_INSUFFICIENT_SIZE; }
  *count = 1;
  LOCKED *found = (Running){(unsigned)getpid(), emulated_used_bytes(INDEX(handle)), 0xffffffff, 0xffffffff};
  return OK;
}
/* The first version has neither instance (nvml.h: nvmlProcessInfo_v1_t). */
typedef struct { unsigned pid; unsigned long long bytes; } Running1;
ANSWER int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, Running1 *found) {
  if (!*count) { *count = 1; return NVML_INSUFFICIENT_SIZE; }
  *count = 1;
  LOCKED *found = (Running1){(unsigned)getpid(), emulated_used_bytes(INDEX(handle))};
  return OK;
}
ANSWER int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "%s", "580.0"); return OK; }
ANSWER int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = the_device()->cuda; return OK; }
ANSWER int nvmlSystemGetCudaDriverVersion(int *version) { *version = the_device()->cuda; return OK; }
ANSWER int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) { (void)handle; rates[0] = rates[1] = 0; return OK; }
ANSWER int nvmlDeviceGetP2PStatus(void *one, void *other, int which, int *status) { (void)one; (void)other; (void)which; *status = 0; return OK; }
/* nvmlGpuFabricInfoV_t: version (its low 24 bits are the size), which is given, then a cluster, a state and the like: no fabric. */
ANSWER int nvmlDeviceGetGpuFabricInfoV(void *handle, unsigned *info) {
  (void)handle;
  size_t size = *info & 0xffffff;
  if (size < sizeof *info) return NVML_INVALID_ARGUMENT;
  memset(info + 1, 0, size - sizeof *info);
  return OK;
}
