/* What the binaries of kernels say of them (images.c). */
#ifndef IMAGES_H
#define IMAGES_H
#include <stdint.h>

/* Registers a thread, bytes of shared memory a block, bytes of local memory a thread; 0 where nobody says. */
typedef struct { int registers, shared, local; } Needs;

/* The kernels of one or several binaries. */
typedef struct Image Image;
Image *image_new(void);
void image_free(Image *image);
/* Reads a cubin; bytes: 0 where nobody says how long it is. What is none is left out. */
void image_add(Image *image, const void *code, uint64_t bytes);
/* The same of an entry of a fat binary, by its header. */
void image_add_entry(Image *image, const void *entry);
Needs image_needs(const Image *image, const char *name);

/* Of a kernel by its stub, or the handle of the driver's; under the lock (modules.c). */
Needs needs_of(const void *kernel);

/* A block of LZ4, a frame of zstd (zstd.c). Return the bytes written; 0: it is none, or there is no room. */
uint64_t lz4_expand(const void *packed, uint64_t packed_bytes, void *into, uint64_t room);
uint64_t zstd_expand(const void *packed, uint64_t packed_bytes, void *into, uint64_t room);
#endif
