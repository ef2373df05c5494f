/* What the files here share. No header of CUDA is needed: every layout is written out, with the header it is of.

   One library answers for the CUDA runtime (12.x and 13.x), the driver's documented functions, NVML and the handles of
   cuBLAS and its kin. It is loaded before PyTorch's own libraries (LD_PRELOAD). Its symbols carry no version: the loader
   takes them for any version asked for (glibc, elf/dl-lookup.c, check_match: a library without versions matches), so that
   one build stands for libcudart.so.12 and .so.13. */
#ifndef EMULATED_H
#define EMULATED_H
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define ANSWER __attribute__((visibility("default")))
#define MIB (1ull << 20)
#define DEVICES 16

/* cudaError_t and CUresult agree on these (driver_types.h, cuda.h). */
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, NO_KERNEL_IMAGE = 209, FILE_NOT_FOUND = 301, NOT_READY = 600, NOT_SUPPORTED = 801, GRAPH_UPDATE_FAILURE = 910 };

/* The device that is not there: what `extensions/analyzer_emulation/device.py` says of it. Sizes in bytes. */
typedef struct {
  char name[128];
  int count, multicast, peers, major, minor, cuda; /* cuda: 13000 for CUDA 13.0, the release PyTorch was built with */
  int sm_count, threads_per_sm, blocks_per_sm, shared_per_sm, shared_per_block, l2;
  uint64_t capacity, listed, driver, context, first_kernel, cublas_code, cudnn_code, cusolver_code, cufft_code, kernels_code,
      launched_code, searched_code, memset_code; /* of a provider, with the first kernel, and with the first search among cuDNN's plans; of the first memset */
  uint64_t known; /* contents of copies up to so many bytes are kept */
} Device;
const Device *the_device(void);
int current_device(void);

/* One lock for everything: nothing here takes long. */
extern pthread_mutex_t emulated_lock;
#define LOCKED for (int once_ = (pthread_mutex_lock(&emulated_lock), 1); once_; once_ = (pthread_mutex_unlock(&emulated_lock), 0))

/* memory.c */
uint64_t device_take(int device, uint64_t bytes); /* 0: no room */
uint64_t device_give(uint64_t address);           /* the bytes that are free again; 0: nothing lay there */
int on_device(uint64_t address);                  /* which device, -1: none */
void process_launches(int kind);                  /* 1 plain, 2 stack, 3 asserting: allocators/process.py */
int process_local(uint64_t frame);                /* a kernel whose threads take so much local memory; 0: no room */
void process_cublas(void);
void process_cublas_gone(void); /* a handle is destroyed */
void process_cudnn(void);
void process_kernel(void);                        /* a kernel was launched */
void process_memset(void);                        /* device memory was set to a value */
void process_search(void);                        /* a provider searched among cuDNN's plans */
enum { LIBRARY_CUFFT, LIBRARY_CUSOLVER };
void process_library(int which);                     /* its code: cuFFT's once, cuSOLVER's for each handle */
void process_streams(void);                          /* one more stream */
void process_graphs(int64_t nodes, int instances);   /* of CUDA graphs: more of them, or fewer */
int process_holds(int device, int64_t bytes);        /* a library's memory outside the allocator; below 0: given back. 0: no room */

/* Physical memory by its handle (cuMemCreate). elsewhere: another process took it. at: of what is mapped there, one use more; 0: nothing is. */
uint64_t physical_elsewhere(int device, uint64_t bytes);
uint64_t physical_bytes(uint64_t handle);
int physical_device(uint64_t handle);
uint64_t physical_at(uint64_t address);
int allocation_at(uint64_t address, uint64_t *base, uint64_t *bytes); /* of cudaMalloc; 0: there is none */

/* contents.c */
void contents_set(uint64_t address, uint64_t bytes, const void *from);
void contents_forget(uint64_t address, uint64_t bytes);
int contents_get(uint64_t address, uint64_t bytes, void *into); /* 1: all of it is known */
/* What is known there stands in for something: since it was computed from such (1), or another rank sent it so (2). */
void contents_mark(uint64_t address, uint64_t bytes, int how);
int contents_stand_in(uint64_t address, uint64_t bytes);
int copied(uint64_t to, uint64_t from, uint64_t bytes);         /* any direction */
int filled(uint64_t to, int value, uint64_t bytes);

/* modules.c */
int capability_of(const void *stub); /* of the code a device runs for a kernel: 10 x major + minor; 0: there is none */
int nothing_runs(void);              /* no library that is loaded has code for the device */

/* inference.c */
void device_noted(uint64_t address, uint64_t bytes); /* what cudaMalloc took (bytes) or cudaFree gave back (0), where that is written down */
const char *convolution_search(void);                /* how this thread's session has cuDNN's plans chosen, NULL: it has not said */
void read_by_host(uint64_t bytes); /* where a provider's requests are written down */

/* streams.c */
void work(int64_t nanoseconds); /* something that takes so long was given to the device */
void captured(void *stream); /* something ran on a stream: a node, if it is captured */

/* watchdog.c */
void collective_begins(const void *stream);
void reduction_recorded(const void *event, const void *stream); /* any event */
int reduction_is_seen(const void *event);
void reduction_forgotten(const void *event);

void *new_handle(void);
int fail(int code); /* remembers the runtime's last error */
/* refused.c: a function without an answer. Says its name once on stderr, and remembers it. */
void refused(const char *name);
#endif
