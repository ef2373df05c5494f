/* ONNX Runtime's CUDA provider: the functions of CUDA's libraries that it calls and PyTorch does not, and the requests of
   its kernels.

   1. Local response normalization, activations, softmax: descriptors hold nothing, computations compute nothing.
   2. With `gpu_external_alloc` and `gpu_external_free` (provider options) the provider asks the two functions below for memory, in
      place of its arena. Each request is written down with its time; inside/session.py reads them with `emulated_requests`.

   3. The provider opens cuDNN by its name. Beside PyTorch NVIDIA's own has that name in the process; this one answers.
   4. A session says how its convolutions' plans are chosen, before it calls cuDNN. As a library of custom operators, of which it has
      none, this one is told where ONNX Runtime's interface lies (inside/arenas.py).

   Signatures: cudnn_ops.h, cudnn_cnn.h of the wheel nvidia-cudnn-cu13 9.19;
   ONNX Runtime, core/providers/cuda/cuda_allocator.h (CUDAExternalAllocator). */
#define _GNU_SOURCE
#include "emulated.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOTHING(name) ANSWER int name(void) { return OK; }
#define DESCRIPTOR(kind)                                                                                    \
  ANSWER int cudnnCreate##kind##Descriptor(void **made) { return (*made = new_handle()) ? OK : 4000; }     \
  ANSWER int cudnnDestroy##kind##Descriptor(void *descriptor) { (void)descriptor; return OK; }
DESCRIPTOR(LRN)
NOTHING(cudnnSetLRNDescriptor) NOTHING(cudnnSetPoolingNdDescriptor)
NOTHING(cudnnDeriveBNTensorDescriptor)

typedef struct { void *stream; } Handle;
#define COMPUTES(name) ANSWER int name(Handle *handle) { captured(handle->stream); return OK; }
COMPUTES(cudnnActivationForward) COMPUTES(cudnnAddTensor) COMPUTES(cudnnBatchNormalizationForwardTraining)
COMPUTES(cudnnLRNCrossChannelForward) COMPUTES(cudnnReduceTensor) COMPUTES(cudnnSoftmaxForward)

ANSWER size_t cudnnGetVersion(void) { return 91900; }
ANSWER const char *cudnnGetErrorString(int status) { return status ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_SUCCESS"; }
ANSWER void cudnnGetLastErrorString(char *text, size_t size) { if (size) *text = 0; }

static __attribute__((noinline)) const char *file_of(const char *name) {
  Dl_info here;
  return name && !strncmp(name, "libcudnn.so", 11) && dladdr((void *)cudnnGetVersion, &here) ? here.dli_fname : name;
}
/* The loader searches where the library of the return address says: the call that goes on is the last one, a jump. */
ANSWER void *dlopen(const char *name, int mode) {
  static void *(*open_next)(const char *, int);
  if (!open_next && !(open_next = dlsym(RTLD_NEXT, "dlopen"))) return NULL;
  name = file_of(name);
  return open_next(name, mode);
}

/* The stream-ordered allocator, of which no program here has shown what it holds; and a copy out of a library's variable. */
#define REFUSES(name) ANSWER int name(void) { refused(#name); return fail(NOT_SUPPORTED); }
REFUSES(cudaMallocFromPoolAsync) REFUSES(cudaMemPoolCreate) REFUSES(cudaMemPoolDestroy)
NOTHING(cudaMemcpyFromSymbol)
/* The driver's linker: looked up when the provider is loaded (cudaDriverWrapper.cc, until 1.26), not called. */
REFUSES(cuLinkAddFile_v2) REFUSES(cuLinkDestroy)

/* -- the requests of a provider with an allocator of the caller's ------------------------------------------------------ */

/* nanoseconds: of the clock that the provider's profiler has (std::chrono::high_resolution_clock, CLOCK_REALTIME in libstdc++).
   bytes: asked for; 0: the address is given back. address 0: so many bytes of the device's memory were read by the host. */
typedef struct { int64_t nanoseconds; uint64_t address, bytes; } Request;
static Request *requests;
static size_t request_count, request_room;
static void note(uint64_t address, uint64_t bytes) {
  if (request_count == request_room) {
    Request *more = realloc(requests, (request_room = request_room ? 2 * request_room : 4096) * sizeof(Request));
    if (!more) { fputs("analyze: no memory left on this machine\n", stderr); _Exit(70); }
    requests = more;
  }
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  requests[request_count++] = (Request){now.tv_sec * 1000000000ll + now.tv_nsec, address, bytes};
}
void read_by_host(uint64_t bytes) { if (request_count) note(0, bytes); }
ANSWER void *emulated_take(size_t bytes) {
  uint64_t address;
  LOCKED if ((address = device_take(current_device(), bytes))) note(address, bytes);
  return (void *)(uintptr_t)address;
}
ANSWER void emulated_give(void *address) { LOCKED if (device_give((uint64_t)(uintptr_t)address)) note((uint64_t)(uintptr_t)address, 0); }
ANSWER void emulated_empty(void) {}
/* The same for a program with arenas of its own: what these take of the device. */
static int noting;
ANSWER void emulated_note_device(int on) { noting = on; }
void device_noted(uint64_t address, uint64_t bytes) { if (noting && address) note(address, bytes); }
ANSWER const Request *emulated_requests(size_t *count) { *count = request_count; return requests; }

/* -- for inside/sessions.py ---------------------------------------------------------------------------------------------- */
static _Thread_local char search[16];
ANSWER void emulated_search(const char *name) { snprintf(search, sizeof search, "%s", name); }
const char *convolution_search(void) { return *search ? search : NULL; }
static const void *api_base; /* OrtApiBase (onnxruntime_c_api.h) */
ANSWER void *RegisterCustomOps(void *options, const void *base) { (void)options; api_base = base; return NULL; }
ANSWER const void *emulated_api_base(void) { return api_base; }
