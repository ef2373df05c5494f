/* Device memory: addresses with nothing behind them, where the driver puts them. The rules, and their measurements, are those of
   `analyzer/allocators/driver.py` (addresses, pages, chunks) and `analyzer/allocators/process.py` (what a context, its first kernels
   and the libraries take); the words here are theirs. A test holds both to each other. */
#include "emulated.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE (2 * MIB)
#define CHUNK (32 * MIB)
#define STEP 512ull
#define MOVED (414 * MIB)
#define STACK_LIMIT 1024ull /* cudaLimitStackSize, as device.c gives it */
#define ROUND(n, to) (((n) + (to)-1) / (to) * (to))

typedef struct { uint64_t address, bytes; } Range;
typedef struct { Range *at; size_t count, room; } Ranges; /* sorted by address */

typedef struct {
  Ranges holes, chunks, ranges, gaps, live;
  uint64_t lowest, origin, frame, page_bytes, besides, most_besides, streams, stream_pages, graph_pages;
  int64_t graph_nodes, graph_instances;
  int ready, had_kernel, has_handle, has_kernels_code, has_cufft, has_launched, has_searched, has_memset;
} Space;
static Space spaces[DEVICES];

static size_t place(const Ranges *r, uint64_t address) { /* the first that does not lie below */
  size_t low = 0, high = r->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (r->at[middle].address < address) low = middle + 1; else high = middle;
  }
  return low;
}
static void insert(Ranges *r, uint64_t address, uint64_t bytes) {
  if (r->count == r->room) {
    Range *more = realloc(r->at, (r->room = r->room ? 2 * r->room : 64) * sizeof(Range));
    if (!more) { fputs("analyze emulate: no memory left on this machine\n", stderr); _Exit(70); }
    r->at = more;
  }
  size_t at = place(r, address);
  memmove(r->at + at + 1, r->at + at, (r->count - at) * sizeof(Range));
  r->at[at] = (Range){address, bytes};
  r->count++;
}
static Range take_out(Ranges *r, size_t at) {
  Range found = r->at[at];
  memmove(r->at + at, r->at + at + 1, (--r->count - at) * sizeof(Range));
  return found;
}
static int starts(const Ranges *r, uint64_t address) { size_t at = place(r, address); return at < r->count && r->at[at].address == address; }

static Space *space_of(int device) {
  Space *s = &spaces[device];
  if (!s->ready) { /* the context leaves two holes, the ends of two chunks */
    s->ready = 1;
    s->origin = (1ull << 46) + ((uint64_t)device << 42);
    insert(&s->holes, s->origin, PAGE);
    insert(&s->holes, s->origin + 74 * MIB, 24 * MIB);
    s->lowest = s->origin - MOVED;
    insert(&s->chunks, s->lowest, MOVED + PAGE);
    s->besides = the_device()->context - the_device()->first_kernel;
  }
  return s;
}
/* What is free with its neighbours, which are taken out; nothing joins across the beginning of a chunk. */
static Range joined(Ranges *freed, uint64_t address, uint64_t bytes, const Ranges *borders) {
  size_t at = place(freed, address);
  if (!(borders && starts(borders, address + bytes)) && at < freed->count && freed->at[at].address == address + bytes)
    bytes += take_out(freed, at).bytes;
  if (!(borders && starts(borders, address)) && at && freed->at[at - 1].address + freed->at[at - 1].bytes == address) {
    Range before = take_out(freed, at - 1);
    address = before.address;
    bytes += before.bytes;
  }
  return (Range){address, bytes};
}
static void free_pages(Space *s, uint64_t address, uint64_t bytes) {
  Range r = joined(&s->holes, address, bytes, &s->chunks);
  size_t at = place(&s->chunks, r.address);
  if (at < s->chunks.count && s->chunks.at[at].address == r.address && s->chunks.at[at].bytes == r.bytes) {
    take_out(&s->chunks, at);
    Range free_range = joined(&s->ranges, r.address, r.bytes, NULL);
    insert(&s->ranges, free_range.address, free_range.bytes);
  } else
    insert(&s->holes, r.address, r.bytes);
}
static uint64_t chunk(Space *s, uint64_t bytes) {
  for (size_t at = s->ranges.count; at-- > 0;)
    if (s->ranges.at[at].bytes >= bytes) {
      Range r = take_out(&s->ranges, at);
      if (r.bytes > bytes) insert(&s->ranges, r.address, r.bytes - bytes);
      insert(&s->chunks, r.address + r.bytes - bytes, bytes);
      return r.address + r.bytes - bytes;
    }
  s->lowest -= bytes;
  insert(&s->chunks, s->lowest, bytes);
  return s->lowest;
}
static uint64_t pages(Space *s, uint64_t bytes) {
  for (size_t at = 0; at < s->holes.count; at++)
    if (s->holes.at[at].bytes >= bytes) {
      Range r = take_out(&s->holes, at);
      if (r.bytes > bytes) insert(&s->holes, r.address + bytes, r.bytes - bytes);
      return r.address;
    }
  uint64_t room = ROUND(bytes, CHUNK), address = chunk(s, room);
  if (room > bytes) insert(&s->holes, address + bytes, room - bytes);
  return address;
}
static int full(const Space *s, uint64_t bytes) { return the_device()->driver + s->besides + s->page_bytes + bytes > the_device()->capacity; }

uint64_t device_take(int device, uint64_t bytes) {
  Space *s = space_of(device);
  uint64_t address = 0;
  if (bytes >= PAGE) {
    uint64_t whole = ROUND(bytes, PAGE);
    if (whole < bytes || full(s, whole)) return 0;
    address = pages(s, whole);
    s->page_bytes += whole;
  } else { /* smaller ones share pages: the smallest gap that fits, the lowest of those */
    bytes = ROUND(bytes ? bytes : 1, STEP);
    size_t best = s->gaps.count;
    for (size_t at = 0; at < s->gaps.count; at++)
      if (s->gaps.at[at].bytes >= bytes && (best == s->gaps.count || s->gaps.at[at].bytes < s->gaps.at[best].bytes)) best = at;
    Range gap;
    if (best < s->gaps.count) gap = take_out(&s->gaps, best);
    else {
      if (full(s, PAGE)) return 0;
      gap = (Range){pages(s, PAGE), PAGE};
      s->page_bytes += PAGE;
    }
    if (gap.bytes > bytes) insert(&s->gaps, gap.address + bytes, gap.bytes - bytes);
    address = gap.address;
  }
  insert(&s->live, address, bytes);
  return address;
}
static Space *space_at(uint64_t address) {
  for (int device = 0; device < the_device()->count; device++) {
    Space *s = &spaces[device];
    if (!s->ready) continue;
    size_t at = place(&s->live, address + 1);
    if (at && address < s->live.at[at - 1].address + s->live.at[at - 1].bytes) return s;
  }
  return NULL;
}
uint64_t device_give(uint64_t address) {
  Space *s = space_at(address);
  if (!s || !starts(&s->live, address)) return 0;
  uint64_t bytes = take_out(&s->live, place(&s->live, address)).bytes, whole = ROUND(bytes, PAGE);
  contents_forget(address, bytes);
  if (bytes < PAGE) insert(&s->gaps, address, bytes); /* shared pages are kept by the driver */
  else {
    s->page_bytes -= whole;
    free_pages(s, address, whole);
  }
  return bytes;
}

/* -- what the process takes besides, by the rules of process.py ------------------------------------------------------- */

void process_launches(int kind) {
  Space *s = space_of(current_device());
  int had = s->had_kernel;
  if (kind <= had) return;
  s->had_kernel = kind;
  if (had < 1) {
    pages(s, PAGE);
    s->besides += the_device()->first_kernel;
  }
  if (had < 2 && kind >= 2) {
    pages(s, 26 * MIB);
    size_t at = place(&s->holes, s->origin);
    if (at < s->holes.count && s->holes.at[at].address == s->origin && s->holes.at[at].bytes == PAGE) {
      take_out(&s->holes, at); /* the whole chunk is free, and its range soon serves libraries */
    } else
      free_pages(s, s->origin - MOVED, MOVED);
  }
  if (had < 3 && kind >= 3) pages(s, 10 * MIB);
}
static void load_once(int *has, uint64_t code) {
  if (!*has) space_of(current_device())->besides += code;
  *has = 1;
}
void process_kernel(void) { load_once(&space_of(current_device())->has_launched, the_device()->launched_code); }
void process_memset(void) { load_once(&space_of(current_device())->has_memset, the_device()->memset_code); }
void process_search(void) { load_once(&space_of(current_device())->has_searched, the_device()->searched_code); }
/* Local memory lies beside the allocator for every thread the device can hold at once: as much as the stack's limit, or a launched
   kernel's if that is more, and it is never given back ("The driver automatically increases the per-thread stack size for each kernel
   launch as needed. This size isn't reset", CUDA driver API, cuCtxSetLimit). By `mem_get_info` on an H100 (driver 580): to the byte, for
   kernels of 16 B to 64 KiB a thread (`benchmarks/serving/outside.py` of commit cf817472, `locals`). */
int process_local(uint64_t frame) {
  Space *s = space_of(current_device());
  const Device *d = the_device();
  uint64_t threads = (uint64_t)d->sm_count * (uint64_t)d->threads_per_sm, had = s->frame ? s->frame : STACK_LIMIT;
  if (frame <= had) return 1;
  uint64_t more = ROUND(frame * threads, PAGE) - ROUND(had * threads, PAGE);
  if (full(s, more)) return 0;
  s->besides += more;
  s->frame = frame;
  return 1;
}
static void load_code(Space *s, uint64_t code) { /* with the first library's that of all kernels (runtimes/pytorch/outside.py) */
  if (!s->has_kernels_code) s->besides += the_device()->kernels_code;
  s->has_kernels_code = 1;
  s->besides += code;
}
static void handle_of(Space *s, uint64_t code) {
  process_launches(1);
  if (!s->has_handle) {
    s->has_handle = 1;
    pages(s, PAGE);
  }
  load_code(s, code);
}
void process_cublas(void) {
  Space *s = space_of(current_device());
  handle_of(s, the_device()->cublas_code);
  pages(s, 64 * MIB);
}
/* By NVML on an H200 (driver 580, onnxruntime-gpu 1.30): of a session that ends, the 64 MiB of each of its two handles are given back,
   and nothing of cuDNN's (tests/data/h200/onnx_serving.json.gz). */
void process_cublas_gone(void) { space_of(current_device())->besides -= the_device()->cublas_code; }
void process_cudnn(void) {
  Space *s = space_of(current_device());
  handle_of(s, the_device()->cudnn_code);
  for (int page = 0; page < 5; page++) pages(s, PAGE);
}

void process_library(int which) {
  Space *s = space_of(current_device());
  if (which == LIBRARY_CUSOLVER) load_code(s, the_device()->cusolver_code);
  else if (!s->has_cufft) load_code(s, the_device()->cufft_code);
  s->has_cufft |= which == LIBRARY_CUFFT;
}

/* Streams and instances of graphs take memory outside the allocator, in pages that the driver keeps when they are destroyed. By
   `mem_get_info` on an H100 (driver 580, torch 2.11; `benchmarks/serving/outside.py` of commit cf817472): four streams share a page, and each takes 48 KiB
   besides (1, 2, 4, ... 64 streams, and PyTorch's 128 alone and behind those: to the page); an instance takes 104 KiB and 2.5 KiB for
   each kernel (256 instances of 8 to 256 kernels: within 3 %; of 700, 24 % less than measured), whatever flag instantiates them, by CUDA
   12.8's runtime as by 13.0's, and nothing when they are uploaded (`benchmarks/serving/graphs.py` of commit cf817472, tests/data/h100/graphs.jsonl). There
   kernels with more than 1,152 bytes of parameters took 1.1 KiB more, with 3,072 and 4,000 bytes 6.3, and graphs that fork into several
   streams up to seven times as much; neither is counted here, and other drivers take more for a kernel (extensions/analyzer_serving/results.py).
   The graphs of an engine on an H100 took 5 % more than this says, of one that forks 20 % (docs/evidence/SERVING.md). */
enum { STREAMS_A_PAGE = 4, STREAM = 48 * 1024, INSTANCE = 104 * 1024, KERNEL_NODE = 2560 };
static void grown(Space *s, uint64_t *pages_held, uint64_t needed) {
  if (needed <= *pages_held) return;
  s->besides += (needed - *pages_held) * PAGE;
  *pages_held = needed;
}
void process_streams(void) {
  Space *s = space_of(current_device());
  uint64_t more = s->streams++;
  grown(s, &s->stream_pages, (more + STREAMS_A_PAGE - 1) / STREAMS_A_PAGE + s->streams * STREAM / PAGE);
}
void process_graphs(int64_t nodes, int instances) {
  Space *s = space_of(current_device());
  s->graph_nodes += nodes;
  s->graph_instances += instances;
  grown(s, &s->graph_pages, (uint64_t)(s->graph_nodes * KERNEL_NODE + s->graph_instances * INSTANCE) / PAGE);
}
ANSWER int64_t emulated_graph_nodes(int device) { /* of all instances there are: other drivers take more for each */
  int64_t found;
  LOCKED found = space_of(device)->graph_nodes;
  return found;
}

int process_holds(int device, int64_t bytes) {
  Space *s = space_of(device);
  if (bytes > 0 && full(s, (uint64_t)bytes)) return 0;
  if (s->most_besides < s->besides) s->most_besides = s->besides;
  s->besides += (uint64_t)bytes;
  if (s->most_besides < s->besides) s->most_besides = s->besides;
  return 1;
}

/* -- physical memory mapped into reserved addresses (expandable segments) --------------------------------------------- */

typedef struct { uint64_t bytes; int device, uses, is_here; } Physical; /* is_here: it was taken by this process */
static uint64_t next_reserved = 1ull << 45;
static Ranges reserved;                                            /* address ranges of cuMemAddressReserve */
static struct { uint64_t address, bytes; Physical *what; } *mapped; /* by age */
static size_t mapped_count, mapped_room;

static void drop(Physical *p) {
  if (--p->uses) return;
  if (p->is_here) space_of(p->device)->page_bytes -= p->bytes;
  free(p);
}
static Physical *mapped_at(uint64_t address) {
  for (size_t at = mapped_count; at-- > 0;)
    if (address >= mapped[at].address && address < mapped[at].address + mapped[at].bytes) return mapped[at].what;
  return NULL;
}
int on_device(uint64_t address) {
  Space *s = space_at(address);
  if (s) return (int)(s - spaces);
  size_t at = place(&reserved, address + 1);
  if (!at || address >= reserved.at[at - 1].address + reserved.at[at - 1].bytes) return -1;
  Physical *p = the_device()->count > 1 ? mapped_at(address) : NULL; /* of one device there is no question */
  return p ? p->device : 0;
}
uint64_t physical_elsewhere(int device, uint64_t bytes) {
  Physical *p = malloc(sizeof *p);
  if (p) *p = (Physical){bytes, device, 1, 0};
  return (uint64_t)(uintptr_t)p;
}
uint64_t physical_bytes(uint64_t handle) { return ((Physical *)(uintptr_t)handle)->bytes; }
int physical_device(uint64_t handle) { return ((Physical *)(uintptr_t)handle)->device; }
uint64_t physical_at(uint64_t address) {
  Physical *p = mapped_at(address);
  if (p) p->uses++;
  return (uint64_t)(uintptr_t)p;
}
int allocation_at(uint64_t address, uint64_t *base, uint64_t *bytes) {
  Space *s = space_at(address);
  if (!s) return 0;
  Range r = s->live.at[place(&s->live, address + 1) - 1];
  *base = r.address;
  *bytes = r.bytes;
  return 1;
}
/* struct CUmemAllocationProp (cuda.h): type, requestedHandleTypes, location {type, id}, ... */
ANSWER int cuMemCreate(uint64_t *handle, size_t bytes, const int *prop, unsigned long long flags) {
  (void)flags;
  int code = OK;
  LOCKED {
    int device = prop[3] >= 0 && prop[3] < the_device()->count ? prop[3] : 0;
    Space *s = space_of(device);
    Physical *p = bytes % PAGE || full(s, bytes) ? NULL : malloc(sizeof *p);
    if (!p) code = bytes % PAGE ? INVALID_VALUE : OUT_OF_MEMORY;
    else {
      *p = (Physical){bytes, device, 1, 1};
      s->page_bytes += bytes;
      *handle = (uint64_t)(uintptr_t)p;
    }
  }
  return code;
}
ANSWER int cuMemRelease(uint64_t handle) { LOCKED drop((Physical *)(uintptr_t)handle); return OK; }
ANSWER int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t hint, unsigned long long flags) {
  (void)hint; (void)flags;
  LOCKED {
    if (alignment > CHUNK) next_reserved = ROUND(next_reserved, alignment);
    *address = next_reserved;
    next_reserved += ROUND(bytes, CHUNK);
    insert(&reserved, *address, bytes);
  }
  return OK;
}
ANSWER int cuMemAddressFree(uint64_t address, size_t bytes) {
  (void)bytes;
  LOCKED { if (starts(&reserved, address)) take_out(&reserved, place(&reserved, address)); }
  return OK;
}
ANSWER int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
  (void)offset; (void)flags;
  LOCKED {
    if (mapped_count == mapped_room) mapped = realloc(mapped, (mapped_room = mapped_room ? 2 * mapped_room : 64) * sizeof *mapped);
    Physical *p = (Physical *)(uintptr_t)handle;
    p->uses++;
    mapped[mapped_count].address = address;
    mapped[mapped_count].bytes = bytes;
    mapped[mapped_count++].what = p;
  }
  return OK;
}
ANSWER int cuMemUnmap(uint64_t address, size_t bytes) {
  LOCKED {
    contents_forget(address, bytes);
    for (size_t at = mapped_count; at-- > 0;)
      if (mapped[at].address >= address && mapped[at].address < address + bytes) {
        drop(mapped[at].what);
        mapped[at] = mapped[--mapped_count];
      }
  }
  return OK;
}
ANSWER int cuMemSetAccess(uint64_t address, size_t bytes, const void *access, size_t count) { (void)address; (void)bytes; (void)access; (void)count; return OK; }
ANSWER int cuMemGetAllocationGranularity(size_t *bytes, const void *prop, int option) { (void)prop; (void)option; *bytes = PAGE; return OK; }
ANSWER int cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t address) {
  uint64_t from = 0, size = 0;
  int found;
  LOCKED found = allocation_at(address, &from, &size);
  if (found && base) *base = from;
  if (found && bytes) *bytes = size;
  return found ? OK : INVALID_VALUE;
}

/* -- the runtime's functions ------------------------------------------------------------------------------------------ */

ANSWER int cudaMalloc(void **address, size_t bytes) {
  LOCKED {
    *address = bytes ? (void *)(uintptr_t)device_take(current_device(), bytes) : NULL;
    device_noted((uint64_t)(uintptr_t)*address, bytes);
  }
  return *address || !bytes ? OK : fail(OUT_OF_MEMORY);
}
/* Managed memory is the host's here: which of its pages lie on the device depends on who touched them last, and none are counted. */
static Ranges managed;
static int take_managed(uint64_t address) {
  int found;
  LOCKED if ((found = starts(&managed, address))) take_out(&managed, place(&managed, address));
  return found;
}
ANSWER int cudaMallocManaged(void **address, size_t bytes, unsigned flags) {
  (void)flags;
  if (!bytes) return fail(INVALID_VALUE);
  if (posix_memalign(address, 4096, bytes)) return fail(OUT_OF_MEMORY);
  LOCKED insert(&managed, (uint64_t)(uintptr_t)*address, bytes);
  return OK;
}
/* What these take differs between CUDA 12 and 13; where pages are to lie changes no answer. */
ANSWER int cudaMemPrefetchAsync(void) { return OK; }
ANSWER int cudaMemAdvise(void) { return OK; }
ANSWER int cudaFree(void *address) {
  uint64_t given = 1;
  if (address && take_managed((uint64_t)(uintptr_t)address)) { free(address); return OK; }
  if (address) LOCKED {
    given = device_give((uint64_t)(uintptr_t)address);
    device_noted((uint64_t)(uintptr_t)address, 0);
  }
  return given ? OK : fail(INVALID_VALUE);
}
ANSWER int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  LOCKED *address = bytes ? device_take(current_device(), bytes) : 0;
  return !bytes ? INVALID_VALUE : *address ? OK : OUT_OF_MEMORY;
}
ANSWER int cuMemFree_v2(uint64_t address) { return cudaFree((void *)(uintptr_t)address); }
ANSWER int cudaMemGetInfo(size_t *available, size_t *total) {
  LOCKED {
    Space *s = space_of(current_device());
    uint64_t used = the_device()->driver + s->besides + s->page_bytes;
    *total = the_device()->capacity;
    *available = used < *total ? *total - used : 0;
  }
  return OK;
}
ANSWER int cuMemGetInfo_v2(size_t *available, size_t *total) { return cudaMemGetInfo(available, total); }

/* Memory of the host is the host's; who asks of a pointer is told where it lies. */
static Ranges pinned;
ANSWER int cudaHostAlloc(void **address, size_t bytes, unsigned flags) {
  (void)flags;
  if (posix_memalign(address, 4096, bytes ? bytes : 1)) return fail(OUT_OF_MEMORY);
  LOCKED insert(&pinned, (uint64_t)(uintptr_t)*address, bytes ? bytes : 1);
  return OK;
}
ANSWER int cudaMallocHost(void **address, size_t bytes) { return cudaHostAlloc(address, bytes, 0); }
static void unpin(void *address) { LOCKED { if (starts(&pinned, (uint64_t)(uintptr_t)address)) take_out(&pinned, place(&pinned, (uint64_t)(uintptr_t)address)); } }
ANSWER int cudaFreeHost(void *address) { unpin(address); free(address); return OK; }
ANSWER int cudaHostRegister(void *address, size_t bytes, unsigned flags) { (void)flags; LOCKED insert(&pinned, (uint64_t)(uintptr_t)address, bytes); return OK; }
ANSWER int cudaHostUnregister(void *address) { unpin(address); return OK; }
ANSWER int cudaHostGetDevicePointer(void **device, void *host, unsigned flags) { (void)flags; *device = host; return OK; }

static int is_pinned(uint64_t address) {
  size_t at = place(&pinned, address + 1);
  return at && address < pinned.at[at - 1].address + pinned.at[at - 1].bytes;
}
static int is_managed(uint64_t address) {
  size_t at = place(&managed, address + 1);
  return at && address < managed.at[at - 1].address + managed.at[at - 1].bytes;
}
/* struct cudaPointerAttributes: CUDA 13 has eight reserved words more. Types: 0 unregistered, 1 host, 2 device, 3 managed. */
typedef struct { int type, device; void *devicePointer, *hostPointer; } PointerAttributes;
ANSWER int cudaPointerGetAttributes(PointerAttributes *found, const void *pointer) {
  LOCKED {
    int device = on_device((uint64_t)(uintptr_t)pointer), host = device < 0 && is_pinned((uint64_t)(uintptr_t)pointer);
    *found = (PointerAttributes){device >= 0 ? 2 : host, device >= 0 ? device : host ? current_device() : -2, device >= 0 || host ? (void *)pointer : NULL, host ? (void *)pointer : NULL};
    if (is_managed((uint64_t)(uintptr_t)pointer)) *found = (PointerAttributes){3, current_device(), (void *)pointer, (void *)pointer};
  }
  return OK;
}
/* CUpointer_attribute: 1 context, 2 memory type (1 host, 2 device), 3 device pointer, 4 host pointer, 8 is managed, 9 device ordinal, 11 where
   its allocation begins, 12 its bytes. Pinned memory of the host has one address everywhere (unified addressing). */
ANSWER int cuPointerGetAttribute(void *value, int which, uint64_t address) {
  int device, host;
  LOCKED { device = on_device(address); host = device < 0 && is_pinned(address); }
  if (device < 0 && !host) return INVALID_VALUE;
  if (host) device = current_device();
  switch (which) {
    case 1: *(uint64_t *)value = (uint64_t)device + 1; return OK;
    case 2: *(unsigned *)value = host ? 1 : 2; return OK;
    case 3: *(uint64_t *)value = address; return OK;
    case 4: if (!host) return INVALID_VALUE; *(uint64_t *)value = address; return OK;
    case 8: *(unsigned *)value = 0; return OK;
    case 9: *(int *)value = device; return OK;
    case 11: return cuMemGetAddressRange_v2(value, NULL, address);
    case 12: return cuMemGetAddressRange_v2(NULL, value, address);
    default: return INVALID_VALUE;
  }
}

/* -- for tests and the program's own process -------------------------------------------------------------------------- */
ANSWER uint64_t emulated_page_bytes(int device) { return space_of(device)->page_bytes; }
ANSWER uint64_t emulated_used_bytes(int device) { Space *s = space_of(device); return s->besides + s->page_bytes; }
/* What libraries held besides when they held most, and have given back since. */
ANSWER uint64_t emulated_given_back_bytes(int device) { Space *s = space_of(device); return s->most_besides > s->besides ? s->most_besides - s->besides : 0; }
/* Local memory beyond what a context has from the start (`process_local`). */
ANSWER uint64_t emulated_local_bytes(int device) {
  Space *s = space_of(device);
  uint64_t threads = (uint64_t)the_device()->sm_count * (uint64_t)the_device()->threads_per_sm;
  return s->frame ? ROUND(s->frame * threads, PAGE) - ROUND(STACK_LIMIT * threads, PAGE) : 0;
}
ANSWER void emulated_launches(int kind) { LOCKED process_launches(kind); }
