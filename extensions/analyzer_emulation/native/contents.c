/* What is known of the contents of device memory: bytes copied there from the host, or written there by the values computed
   beside (`inside/process_values.py`). Everything else reads as unknown: zeros, and the reader is told so. */
#include "emulated.h"
#include <stdlib.h>
#include <string.h>

typedef struct { uint64_t address, bytes; unsigned char *data; int stands_in; } Piece;
static Piece *pieces; /* sorted, none overlaps another */
static size_t count, room;

/* What the op under way on this thread may read, set by inside/process_values.py. */
static _Thread_local int inside;                       /* 1: bytes of device memory may be stale, every read is unknown */
static _Thread_local int64_t answers[8];               /* sizes the op will ask for */
static _Thread_local int answer_count, answer_at;
static _Thread_local int unknown_reads;
static _Thread_local uint64_t unknown_bytes;

static size_t place(uint64_t address) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (pieces[middle].address + pieces[middle].bytes <= address) low = middle + 1; else high = middle;
  }
  return low;
}
static void put(size_t at, uint64_t address, uint64_t bytes, const void *from, int stands_in) {
  if (!bytes) return;
  unsigned char *data = malloc(bytes);
  if (count == room) {
    Piece *more = realloc(pieces, (room ? 2 * room : 256) * sizeof *pieces);
    if (!more) { free(data); return; }
    pieces = more;
    room = room ? 2 * room : 256;
  }
  if (!data) return;
  memcpy(data, from, bytes);
  memmove(pieces + at + 1, pieces + at, (count - at) * sizeof *pieces);
  pieces[at] = (Piece){address, bytes, data, stands_in};
  count++;
}
void contents_forget(uint64_t address, uint64_t bytes) {
  if (!bytes) return;
  size_t first = place(address), last = first;
  while (last < count && pieces[last].address < address + bytes) last++;
  if (first == last) return;
  Piece head = pieces[first], tail = pieces[last - 1];
  uint64_t before = head.address < address ? address - head.address : 0;
  uint64_t end = tail.address + tail.bytes, after = end > address + bytes ? end - (address + bytes) : 0;
  unsigned char *keep_head = head.data, *keep_tail = tail.data;
  for (size_t at = first; at < last; at++)
    if (pieces[at].data != keep_head && pieces[at].data != keep_tail) free(pieces[at].data);
  memmove(pieces + first, pieces + last, (count - last) * sizeof *pieces);
  count -= last - first;
  if (after) put(first, address + bytes, after, keep_tail + (tail.bytes - after), tail.stands_in);
  if (before) put(first, head.address, before, keep_head, head.stands_in);
  free(keep_head);
  if (keep_tail != keep_head) free(keep_tail);
}
void contents_set(uint64_t address, uint64_t bytes, const void *from) {
  contents_forget(address, bytes);
  if (bytes <= the_device()->known) put(place(address), address, bytes, from, 0);
}
int contents_get(uint64_t address, uint64_t bytes, void *into) {
  uint64_t at = address, end = address + bytes;
  for (size_t i = place(address); at < end; i++) {
    if (i == count || pieces[i].address > at) return 0;
    uint64_t offset = at - pieces[i].address, here = pieces[i].bytes - offset;
    if (here > end - at) here = end - at;
    memcpy((unsigned char *)into + (at - address), pieces[i].data + offset, here);
    at += here;
  }
  return 1;
}
void contents_mark(uint64_t address, uint64_t bytes, int how) {
  for (size_t i = place(address); i < count && pieces[i].address < address + bytes; i++) pieces[i].stands_in |= how;
}
int contents_stand_in(uint64_t address, uint64_t bytes) {
  int found = 0;
  for (size_t i = place(address); i < count && pieces[i].address < address + bytes; i++) found |= pieces[i].stands_in;
  return found;
}
int copied(uint64_t to, uint64_t from, uint64_t bytes) {
  LOCKED {
    int to_device = on_device(to) >= 0, from_device = on_device(from) >= 0;
    if (!to_device && !from_device) memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    else if (to_device && !from_device) contents_set(to, bytes, (void *)(uintptr_t)from);
    else if (!to_device) {
      read_by_host(bytes);
      if (bytes > 8u * (unsigned)(answer_count - answer_at) || !bytes) {
        if (inside || !contents_get(from, bytes, (void *)(uintptr_t)to)) {
          memset((void *)(uintptr_t)to, 0, bytes);
          unknown_reads++;
          unknown_bytes += bytes;
        }
      } else { /* little endian */
        memcpy((void *)(uintptr_t)to, &answers[answer_at], bytes);
        answer_at += (int)((bytes + 7) / 8);
      }
    } else {
      void *between = bytes <= the_device()->known ? malloc(bytes) : NULL;
      if (between && !inside && contents_get(from, bytes, between)) {
        int stands_in = contents_stand_in(from, bytes);
        contents_set(to, bytes, between);
        contents_mark(to, bytes, stands_in);
      }
      else contents_forget(to, bytes);
      free(between);
    }
  }
  return OK;
}
int filled(uint64_t to, int value, uint64_t bytes) {
  LOCKED {
    if (on_device(to) < 0) memset((void *)(uintptr_t)to, value, bytes);
    else if (bytes <= the_device()->known) {
      void *data = malloc(bytes ? bytes : 1);
      if (data) { memset(data, value, bytes); contents_set(to, bytes, data); free(data); }
    } else contents_forget(to, bytes);
  }
  return OK;
}

#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))
ANSWER int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) { (void)kind; return copied(ADDRESS(to), ADDRESS(from), bytes); }
ANSWER int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) { (void)kind; captured(stream); return copied(ADDRESS(to), ADDRESS(from), bytes); }
ANSWER int cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t bytes, void *stream) { (void)a; (void)b; captured(stream); return copied(ADDRESS(to), ADDRESS(from), bytes); }
ANSWER int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind, void *stream) {
  (void)kind;
  captured(stream);
  for (size_t row = 0; row < height; row++) copied(ADDRESS(to) + row * to_pitch, ADDRESS(from) + row * from_pitch, width);
  return OK;
}
ANSWER int cudaMemset(void *to, int value, size_t bytes) { LOCKED process_memset(); return filled(ADDRESS(to), value, bytes); }
ANSWER int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream) { captured(stream); LOCKED process_memset(); return filled(ADDRESS(to), value, bytes); }
ANSWER int cuMemsetD32Async(uint64_t to, unsigned value, size_t words, void *stream) {
  captured(stream);
  if (value == (value & 0xff) * 0x01010101u) return filled(to, (int)(value & 0xff), words * 4);
  LOCKED contents_forget(to, words * 4);
  return OK;
}
/* The driver's forms (cuda.h): addresses are numbers, sizes are in elements. */
ANSWER int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { return copied(to, ADDRESS(from), bytes); }
ANSWER int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { return copied(ADDRESS(to), from, bytes); }
ANSWER int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) { return copied(to, from, bytes); }
ANSWER int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t count) { return filled(to, value, count); }
ANSWER int cuMemsetD16_v2(uint64_t to, unsigned short value, size_t count) { (void)value; LOCKED contents_forget(to, count * 2); return OK; }
ANSWER int cuMemsetD32_v2(uint64_t to, unsigned value, size_t count) { (void)value; LOCKED contents_forget(to, count * 4); return OK; }
/* cuBLAS's copies (cublas_api.h); element sizes are in bytes. */
ANSWER int cublasGetVectorAsync(int n, int size, const void *from, int step_from, void *to, int step_to, void *stream) {
  captured(stream);
  for (int i = 0; i < n; i++) copied(ADDRESS(to) + (uint64_t)i * step_to * size, ADDRESS(from) + (uint64_t)i * step_from * size, size);
  return OK;
}

/* -- for inside/process_values.py ---------------------------------------------------------------------------------------------- */
ANSWER int emulated_peek(uint64_t address, uint64_t bytes, void *into) { int found; LOCKED found = contents_get(address, bytes, into); return found; }
ANSWER void emulated_poke(uint64_t address, uint64_t bytes, const void *from) {
  LOCKED {
    contents_forget(address, bytes);
    put(place(address), address, bytes, from, 0);
  }
}
ANSWER void emulated_mark(uint64_t address, uint64_t bytes) { LOCKED contents_mark(address, bytes, 1); }
ANSWER int emulated_was_sent_a_stand_in(uint64_t address, uint64_t bytes) { int found; LOCKED found = contents_stand_in(address, bytes); return (found & 2) != 0; }
ANSWER void emulated_forget(uint64_t address, uint64_t bytes) { LOCKED contents_forget(address, bytes); }
ANSWER void emulated_begin(int only_unknown, const int64_t *sizes, int size_count) {
  inside = only_unknown;
  answer_at = 0;
  answer_count = size_count < 8 ? size_count : 8;
  for (int i = 0; i < answer_count; i++) answers[i] = sizes[i];
  unknown_reads = 0;
  unknown_bytes = 0;
}
ANSWER int emulated_end(void) { inside = answer_count = 0; return unknown_reads; }
