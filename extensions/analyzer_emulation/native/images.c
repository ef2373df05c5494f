/* What a kernel's binary says of it: registers, shared memory, and the bytes of local memory a thread takes.

   A binary ("cubin") is an ELF file. Its section `.nv.info` holds an attribute after the other: format, number, and a value,
   or (format 4) a length and so many bytes, which for the three read here are a kernel's symbol and a number. Formats and numbers
   are those that `cuobjdump -elf` of CUDA 12.8 and 13.0 prints (EIATTR_FRAME_SIZE, EIATTR_MIN_STACK_SIZE, EIATTR_REGCOUNT, read off their
   bytes); a test holds what is read to that tool's `-res-usage`. The frame is a kernel's own, the stack also that of the functions it calls.

   In a fat binary a cubin may be compressed: an entry's flags say how (0x2000 LZ4: CUDA 12; 0x8000 zstd: CUDA 13), the words behind
   its header size how long it is before and after. LZ4's blocks are those of lz4_Block_format.md (LZ4 1.10).
   Not modelled: PTX, which the driver compiles. */
#include "images.h"
#include <stdlib.h>
#include <string.h>

enum { SYMBOLS = 2, FORMAT_BYTES = 4, FRAME = 0x11, LEAST_STACK = 0x12, REGISTERS = 0x2f };
enum { SECTION_BYTES = 64, SYMBOL_BYTES = 24 };
enum { LZ4 = 0x2000, ZSTD = 0x8000 };

typedef struct { char *name; Needs needs; } Named;
struct Image { Named *kernels; size_t count; };

typedef struct { const unsigned char *at; uint64_t bytes; } View;
static View part(View of, uint64_t from, uint64_t bytes) { /* nothing where it is not inside */
  return from > of.bytes || bytes > of.bytes - from ? (View){NULL, 0} : (View){of.at + from, bytes};
}
static uint64_t number(View of, uint64_t from, size_t bytes) {
  uint64_t found = 0;
  View here = part(of, from, bytes);
  if (here.at) memcpy(&found, here.at, bytes);
  return found;
}

/* -- ELF (elf.h, Elf64_Ehdr, Elf64_Shdr, Elf64_Sym) --------------------------------------------------------------------- */

static View section(View file, uint64_t index) {
  return part(file, number(file, 40, 8) + index * SECTION_BYTES, SECTION_BYTES);
}
static View content(View file, View header) {
  return header.at ? part(file, number(header, 24, 8), number(header, 32, 8)) : header;
}
static const char *text(View strings, uint64_t from) {
  View rest = from < strings.bytes ? part(strings, from, strings.bytes - from) : (View){NULL, 0};
  return rest.at && memchr(rest.at, 0, rest.bytes) ? (const char *)rest.at : "";
}
/* A file in memory of which nobody says how long it is ends behind its last section, or the table of these. */
static uint64_t elf_bytes(const void *image) {
  View all = {image, (uint64_t)1 << 40}, header;
  uint64_t count = number(all, 60, 2), end = number(all, 40, 8) + count * SECTION_BYTES;
  for (uint64_t i = 0; i < count; i++) {
    header = section(all, i);
    uint64_t last = number(header, 24, 8) + number(header, 32, 8);
    if (number(header, 4, 4) != 8 && last > end) end = last; /* SHT_NOBITS lies nowhere */
  }
  return end;
}
static Needs *kernel_named(Image *image, const char *name) {
  for (size_t i = 0; i < image->count; i++)
    if (!strcmp(image->kernels[i].name, name)) return &image->kernels[i].needs;
  Named *more = realloc(image->kernels, (image->count + 1) * sizeof *more);
  char *own = strdup(name);
  if (!more || !own) abort();
  image->kernels = more;
  more[image->count] = (Named){own, {0, 0, 0}};
  return &more[image->count++].needs;
}
static void read_attributes(Image *image, View info, View symbols, View strings) {
  for (uint64_t at = 0; at + 4 <= info.bytes;) {
    int format = (int)number(info, at, 1), which = (int)number(info, at + 1, 1);
    uint64_t size = format == FORMAT_BYTES ? number(info, at + 2, 2) : 0;
    if (size == 8 && (which == FRAME || which == LEAST_STACK || which == REGISTERS)) {
      View symbol = part(symbols, number(info, at + 4, 4) * SYMBOL_BYTES, SYMBOL_BYTES);
      int value = (int)number(info, at + 8, 4);
      const char *name = symbol.at ? text(strings, number(symbol, 0, 4)) : "";
      if (*name) {
        Needs *needs = kernel_named(image, name);
        if (which == REGISTERS) needs->registers = value;
        else if (value > needs->local) needs->local = value; /* a stack nobody can tell is -1 */
      }
    }
    at += 4 + size;
  }
}
static void read_elf(Image *image, View file) {
  uint64_t count = number(file, 60, 2);
  View names = content(file, section(file, number(file, 62, 2))), symbols = {NULL, 0}, strings = {NULL, 0};
  for (uint64_t i = 0; i < count; i++) {
    View header = section(file, i);
    if (number(header, 4, 4) != SYMBOLS) continue;
    symbols = content(file, header);
    strings = content(file, section(file, number(header, 40, 4)));
  }
  for (uint64_t i = 0; i < count; i++) {
    View header = section(file, i);
    const char *name = header.at ? text(names, number(header, 0, 4)) : "";
    if (!strcmp(name, ".nv.info")) read_attributes(image, content(file, header), symbols, strings);
    if (!strncmp(name, ".nv.shared.", 11) && strncmp(name + 11, "reserved.", 9))
      kernel_named(image, name + 11)->shared = (int)number(header, 32, 8);
  }
}

/* -- LZ4 --------------------------------------------------------------------------------------------------------------- */

static int longer(View from, uint64_t *at, uint64_t *length) { /* further bytes of a length, while they are 255 */
  for (int more = 255; more == 255; *length += (uint64_t)more) {
    if (*at >= from.bytes) return 0;
    more = from.at[(*at)++];
  }
  return 1;
}
uint64_t lz4_expand(const void *packed, uint64_t packed_bytes, void *into, uint64_t room) {
  View from = {packed, packed_bytes};
  unsigned char *out = into;
  uint64_t at = 0, done = 0;
  while (at < from.bytes) {
    int token = from.at[at++];
    uint64_t plain = (uint64_t)token >> 4, copied = token & 15;
    if (plain == 15 && !longer(from, &at, &plain)) return 0;
    if (plain > from.bytes - at || plain > room - done) return 0;
    memcpy(out + done, from.at + at, plain);
    at += plain;
    done += plain;
    if (at == from.bytes) return done; /* the last sequence has no match */
    uint64_t back = number(from, at, 2);
    at += 2;
    if (copied == 15 && !longer(from, &at, &copied)) return 0;
    copied += 4;
    if (at > from.bytes || !back || back > done || copied > room - done) return 0;
    for (uint64_t i = 0; i < copied; i++, done++) out[done] = out[done - back]; /* the two may overlap */
  }
  return done;
}

/* -- what is asked ------------------------------------------------------------------------------------------------------ */

Image *image_new(void) {
  Image *image = calloc(1, sizeof *image);
  if (!image) abort();
  return image;
}
void image_add(Image *image, const void *code, uint64_t bytes) {
  if (strncmp(code, "\177ELF\2", 5)) return; /* PTX is text */
  read_elf(image, (View){code, bytes ? bytes : elf_bytes(code)});
}
void image_add_entry(Image *image, const void *entry) {
  View header = {entry, 64};
  uint64_t flags = number(header, 40, 8), bytes = number(header, 8, 8);
  const char *code = (const char *)entry + number(header, 4, 4);
  if (!(flags & (LZ4 | ZSTD))) {
    image_add(image, code, bytes);
    return;
  }
  uint64_t packed = number(header, 16, 4), room = number(header, 56, 8);
  void *plain = packed <= bytes && room <= UINT32_MAX ? malloc(room + 1) : NULL;
  if (!plain) return;
  uint64_t found = (flags & LZ4 ? lz4_expand : zstd_expand)(code, packed, plain, room);
  if (found) image_add(image, plain, found);
  free(plain);
}
Needs image_needs(const Image *image, const char *name) {
  for (size_t i = 0; image && name && i < image->count; i++)
    if (!strcmp(image->kernels[i].name, name)) return image->kernels[i].needs;
  return (Needs){0, 0, 0};
}
void image_free(Image *image) {
  for (size_t i = 0; image && i < image->count; i++) free(image->kernels[i].name);
  if (image) free(image->kernels);
  free(image);
}
