/* Memory that several processes reach: exported, opened by another rank, written by all at once (multicast). It takes memory of the device it
   was made on, once, in the process that made it; for others it is an address. Documents: CUDA Driver API, "Virtual Memory Management",
   "Multicast Object Management"; CUDA Runtime API, "Device Management" (cudaIpc...). */
#define _GNU_SOURCE
#include "emulated.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FILE_DESCRIPTOR = 1, MAGIC = 0x616e616c };
/* What stands in a handle: in a file without a name, or in the 64 bytes of a cudaIpcMemHandle_t. */
typedef struct { int magic, device; uint64_t address, bytes; } About;
typedef struct { char bytes[64]; } IpcHandle;

ANSWER int cuMemExportToShareableHandle(void *into, uint64_t handle, int type, unsigned long long flags) {
  (void)flags;
  if (type != FILE_DESCRIPTOR) return NOT_SUPPORTED;
  About about = {.magic = MAGIC};
  LOCKED { about.device = physical_device(handle); about.bytes = physical_bytes(handle); }
  int file = memfd_create("analyzer", MFD_CLOEXEC);
  if (file < 0 || write(file, &about, sizeof about) != sizeof about) return OUT_OF_MEMORY;
  *(int *)into = file;
  return OK;
}
ANSWER int cuMemImportFromShareableHandle(uint64_t *handle, void *from, int type) {
  About about;
  if (type != FILE_DESCRIPTOR) return NOT_SUPPORTED;
  if (pread((int)(uintptr_t)from, &about, sizeof about, 0) != sizeof about || about.magic != MAGIC) return INVALID_VALUE;
  LOCKED *handle = physical_elsewhere(about.device, about.bytes);
  return *handle ? OK : OUT_OF_MEMORY;
}
ANSWER int cuMemRetainAllocationHandle(uint64_t *handle, void *address) {
  LOCKED *handle = physical_at((uint64_t)(uintptr_t)address);
  return *handle ? OK : INVALID_VALUE;
}
/* struct CUmemAllocationProp: type (1 pinned), handle types, location {type (1 device), id}, ... */
ANSWER int cuMemGetAllocationPropertiesFromHandle(int *prop, uint64_t handle) {
  memset(prop, 0, 32);
  prop[0] = prop[1] = prop[2] = 1;
  LOCKED prop[3] = physical_device(handle);
  return OK;
}

/* Multicast objects hold no memory of their own. What is to be bound to them is rounded up to their granularity: a page at least, and 512 MiB where
   the recommended one is asked for, which is what three buffers of 8 to 336 MiB take of an H100 behind NVSwitches in vLLM's public logs
   (tests/data/serving: 1.5 GiB with 2 ranks and with 4; FlashInfer asks so, comm/mnnvl.py). struct CUmulticastObjectProp: devices, bytes, ... */
typedef struct { unsigned devices; size_t bytes; unsigned long long handle_types, flags; } Multicast;
ANSWER int cuMulticastCreate(uint64_t *handle, const Multicast *prop) {
  LOCKED *handle = physical_elsewhere(current_device(), prop->bytes);
  return *handle ? OK : OUT_OF_MEMORY;
}
ANSWER int cuMulticastGetGranularity(size_t *bytes, const Multicast *prop, int is_recommended) {
  (void)prop;
  *bytes = is_recommended ? 512 * MIB : 2 * MIB;
  return OK;
}
ANSWER int cuMulticastAddDevice(uint64_t handle, int device) { (void)handle; (void)device; return OK; }
ANSWER int cuMulticastBindMem(void) { return OK; }
ANSWER int cuMulticastBindAddr(void) { return OK; }
ANSWER int cuMulticastUnbind(void) { return OK; }

/* Another process's allocation by its handle: the whole of it, wherever in it the address lay that was given. */
int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags);
int cuMemUnmap(uint64_t address, size_t bytes);
int cuMemRelease(uint64_t handle);
int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t hint, unsigned long long flags);
int cuMemAddressFree(uint64_t address, size_t bytes);
ANSWER int cudaIpcGetMemHandle(IpcHandle *handle, void *address) {
  About about = {.magic = MAGIC};
  int found;
  LOCKED {
    found = allocation_at((uint64_t)(uintptr_t)address, &about.address, &about.bytes);
    about.device = on_device((uint64_t)(uintptr_t)address);
  }
  if (!found) return fail(INVALID_VALUE);
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &about, sizeof about);
  return OK;
}
ANSWER int cudaIpcOpenMemHandle(void **address, IpcHandle handle, unsigned flags) {
  (void)flags;
  About about;
  uint64_t made, at;
  memcpy(&about, &handle, sizeof about);
  if (about.magic != MAGIC) return fail(INVALID_VALUE);
  LOCKED made = physical_elsewhere(about.device, about.bytes);
  if (!made) return fail(OUT_OF_MEMORY);
  cuMemAddressReserve(&at, about.bytes, 0, 0, 0);
  cuMemMap(at, about.bytes, 0, made, 0);
  cuMemRelease(made);
  *address = (void *)(uintptr_t)at;
  return OK;
}
ANSWER int cudaIpcCloseMemHandle(void *address) {
  uint64_t handle, bytes = 0;
  LOCKED if ((handle = physical_at((uint64_t)(uintptr_t)address))) bytes = physical_bytes(handle);
  if (!handle) return fail(INVALID_VALUE);
  cuMemUnmap((uint64_t)(uintptr_t)address, bytes);
  cuMemAddressFree((uint64_t)(uintptr_t)address, bytes);
  return cuMemRelease(handle);
}
ANSWER int cuIpcGetMemHandle(IpcHandle *handle, uint64_t address) { return cudaIpcGetMemHandle(handle, (void *)(uintptr_t)address); }
ANSWER int cuIpcOpenMemHandle_v2(uint64_t *address, IpcHandle handle, unsigned flags) { return cudaIpcOpenMemHandle((void **)address, handle, flags); }
ANSWER int cuIpcCloseMemHandle(uint64_t address) { return cudaIpcCloseMemHandle((void *)(uintptr_t)address); }
