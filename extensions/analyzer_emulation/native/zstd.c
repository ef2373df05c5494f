/* What zstd compressed (RFC 8878), expanded: frames of blocks, whose literals are coded by Huffman's codes and whose sequences (so many
   literals, then so many bytes from so far back) by finite state entropy. NVIDIA's compiler compresses code so since CUDA 13, and a
   library for it is on few machines. Words are the RFC's. Not modelled: dictionaries; checksums are not compared. */
#include "images.h"
#include <stdlib.h>
#include <string.h>

typedef struct { const unsigned char *at; uint64_t bytes; } View;
typedef struct { uint16_t base; uint8_t symbol, bits; } State;
typedef struct { State states[512]; int log; } Fse; /* log: accuracy; -1 before any was read */
typedef struct {
  unsigned char *out, *literals;
  uint64_t done, room, literal_count;
  struct { uint8_t symbol, bits; } huffman[1 << 11];
  int huffman_bits;
  Fse lengths, offsets, matches;
  uint64_t repeated[3];
} Decoder;
enum { LARGEST_BLOCK = 128 * 1024 };

static int highest_bit(uint64_t of) { return 63 - __builtin_clzll(of); }

/* -- bits, from the end of a stream to its beginning: the last byte's highest bit is a mark (RFC 8878, 4.1) ------------------ */

typedef struct { const unsigned char *at; int64_t left; } Bits; /* left: of bits; below 0: more was read than there is */
static int bits_open(Bits *bits, View of) {
  if (!of.bytes || !of.at[of.bytes - 1]) return 0;
  *bits = (Bits){of.at, (int64_t)(8 * (of.bytes - 1)) + highest_bit(of.at[of.bytes - 1])};
  return 1;
}
static uint64_t bits_read(Bits *bits, int count) { /* zeros where there are none left */
  uint64_t found = 0;
  bits->left -= count;
  for (int i = count; i-- > 0;) {
    int64_t place = bits->left + i;
    found = found << 1 | (place >= 0 ? bits->at[place >> 3] >> (place & 7) & 1 : 0);
  }
  return found;
}

/* Bits from the lowest of a place on; zeros where there are none. */
static uint64_t peek(View of, uint64_t bit, int count) {
  uint64_t found = 0;
  for (int i = count; i-- > 0;) {
    uint64_t place = bit + (uint64_t)i;
    found = found << 1 | (place < 8 * of.bytes ? of.at[place >> 3] >> (place & 7) & 1 : 0);
  }
  return found;
}

/* -- finite state entropy (4.1.1) ----------------------------------------------------------------------------------------- */

static void fse_build(Fse *table, const int16_t *counts, int symbols, int log) {
  int size = 1 << log, high = size - 1, place = 0, step = (size >> 1) + (size >> 3) + 3;
  uint16_t next[256];
  table->log = log;
  for (int symbol = 0; symbol < symbols; symbol++) {
    next[symbol] = (uint16_t)(counts[symbol] < 0 ? 1 : counts[symbol]);
    if (counts[symbol] < 0) table->states[high--].symbol = (uint8_t)symbol;
  }
  for (int symbol = 0; symbol < symbols; symbol++)
    for (int i = 0; i < counts[symbol]; i++) {
      table->states[place].symbol = (uint8_t)symbol;
      do place = (place + step) & (size - 1); while (place > high);
    }
  for (int i = 0; i < size; i++) {
    State *state = &table->states[i];
    unsigned number = next[state->symbol]++;
    state->bits = (uint8_t)(log - highest_bit(number));
    state->base = (uint16_t)((number << state->bits) - (unsigned)size);
  }
}
/* A table's description at the beginning of `from`. Returns its bytes; 0: it is none. */
static uint64_t fse_read(Fse *table, View from, int largest_log, int largest_symbols) {
  uint64_t at = 0; /* bits, from the lowest of the first byte */
  int log = (int)peek(from, at, 4) + 5, symbols = 0, left = (1 << log) + 1, bits = log + 1, threshold = 1 << log;
  int16_t counts[256];
  if (log > largest_log) return 0;
  at = 4;
  while (left > 1) {
    int least = 2 * threshold - 1 - left, value = (int)peek(from, at, bits - 1);
    if (value < least) at += (uint64_t)bits - 1;
    else {
      value = (int)peek(from, at, bits);
      at += (uint64_t)bits;
      if (value >= threshold) value -= least;
    }
    if (symbols == largest_symbols) return 0;
    counts[symbols++] = (int16_t)--value;
    left -= value < 0 ? -value : value;
    for (int more = value ? 0 : 3; more == 3;) {
      more = (int)peek(from, at, 2);
      at += 2;
      if (symbols + more > largest_symbols) return 0;
      for (int i = 0; i < more; i++) counts[symbols++] = 0;
    }
    while (left > 0 && left < threshold) { bits--; threshold >>= 1; }
    if (left < 1 || at > 8 * from.bytes) return 0;
  }
  fse_build(table, counts, symbols, log);
  return (at + 7) / 8;
}
static unsigned fse_start(const Fse *table, Bits *bits) { return (unsigned)bits_read(bits, table->log); }
static unsigned fse_next(const Fse *table, unsigned state, Bits *bits) {
  return table->states[state].base + (unsigned)bits_read(bits, table->states[state].bits);
}

/* -- literals (3.1.1.3.1), by Huffman's codes (4.2) ------------------------------------------------------------------------- */

static int huffman_build(Decoder *d, uint8_t *weights, int count) { /* the last weight is what is missing of a power of 2 */
  unsigned sum = 0, place = 0;
  for (int i = 0; i < count; i++) sum += weights[i] ? 1u << (weights[i] - 1) : 0;
  if (!sum || count > 255) return 0;
  int bits = highest_bit(sum) + 1;
  unsigned missing = (1u << bits) - sum;
  if (bits > 11 || missing & (missing - 1)) return 0;
  weights[count++] = (uint8_t)(highest_bit(missing) + 1);
  for (int weight = 1; weight <= bits; weight++)
    for (int symbol = 0; symbol < count; symbol++)
      if (weights[symbol] == weight)
        for (unsigned i = 0; i < 1u << (weight - 1) && place < 1u << bits; i++, place++) {
          d->huffman[place].symbol = (uint8_t)symbol;
          d->huffman[place].bits = (uint8_t)(bits + 1 - weight);
        }
  d->huffman_bits = bits;
  return 1;
}
static uint64_t huffman_read(Decoder *d, View from) { /* the bytes of the tree's description; 0: it is none */
  uint8_t weights[257];
  int count = 0;
  if (!from.bytes) return 0;
  uint64_t said = from.at[0];
  if (said >= 128) {
    uint64_t bytes = (said - 126) / 2;
    if (bytes > from.bytes - 1) return 0;
    for (count = 0; count < (int)said - 127; count++) weights[count] = from.at[1 + count / 2] >> (count & 1 ? 0 : 4) & 15;
    for (int i = 0; i < count; i++) if (weights[i] > 11) return 0;
    return huffman_build(d, weights, count) ? 1 + bytes : 0;
  }
  Fse table = {.log = -1};
  Bits bits;
  if (said > from.bytes - 1) return 0;
  uint64_t head = fse_read(&table, (View){from.at + 1, said}, 6, 12);
  if (!head || head >= said || !bits_open(&bits, (View){from.at + 1 + head, said - head})) return 0;
  unsigned one = fse_start(&table, &bits), other = fse_start(&table, &bits);
  while (count < 255) { /* the two take turns until a state needs more than there is; the other's symbol is the last */
    weights[count++] = table.states[one].symbol;
    one = fse_next(&table, one, &bits);
    unsigned turn = one;
    if (bits.left < 0) {
      weights[count++] = table.states[other].symbol;
      return huffman_build(d, weights, count) ? 1 + said : 0;
    }
    one = other;
    other = turn;
  }
  return 0;
}
static int huffman_stream(Decoder *d, View from, uint64_t first, uint64_t count) {
  Bits bits;
  if (!bits_open(&bits, from)) return 0;
  for (uint64_t i = 0; i < count; i++) {
    Bits ahead = bits;
    unsigned code = (unsigned)bits_read(&ahead, d->huffman_bits);
    d->literals[first + i] = d->huffman[code].symbol;
    bits.left -= d->huffman[code].bits;
  }
  return bits.left == 0;
}
static uint64_t literals(Decoder *d, View from) { /* the bytes of the section; 0: it is none */
  enum { RAW, SAME, COMPRESSED };
  if (!from.bytes) return 0;
  int type = from.at[0] & 3, format = from.at[0] >> 2 & 3;
  uint64_t head, count, packed;
  if (type <= SAME) {
    head = format == 3 ? 3 : format == 1 ? 2 : 1;
    count = format & 1 ? peek(from, 4, format == 3 ? 20 : 12) : peek(from, 3, 5);
    packed = type == RAW ? count : 1;
  } else {
    int width = format < 2 ? 10 : format == 2 ? 14 : 18;
    head = format < 2 ? 3 : format == 2 ? 4 : 5;
    count = peek(from, 4, width);
    packed = peek(from, 4 + (uint64_t)width, width);
  }
  if (count > LARGEST_BLOCK || head > from.bytes || packed > from.bytes - head) return 0;
  View rest = {from.at + head, packed};
  d->literal_count = count;
  if (type == RAW) memcpy(d->literals, rest.at, count);
  else if (type == SAME) memset(d->literals, rest.at[0], count);
  else {
    uint64_t tree = type == COMPRESSED ? huffman_read(d, rest) : 0;
    if ((type == COMPRESSED && !tree) || !d->huffman_bits) return 0;
    rest = (View){rest.at + tree, packed - tree};
    if (!format) return huffman_stream(d, rest, 0, count) ? head + packed : 0;
    uint64_t each = (count + 3) / 4, at = 6;
    for (int stream = 0; stream < 4; stream++) {
      uint64_t bytes = stream < 3 ? peek(rest, 16 * (uint64_t)stream, 16) : rest.bytes - at, first = each * (uint64_t)stream;
      if (at > rest.bytes || bytes > rest.bytes - at || first > count) return 0;
      if (!huffman_stream(d, (View){rest.at + at, bytes}, first, stream < 3 ? each : count - first)) return 0;
      at += bytes;
    }
  }
  return head + packed;
}

/* -- sequences (3.1.1.3.2) --------------------------------------------------------------------------------------------------- */

static const uint32_t length_base[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 28, 32, 40, 48, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
static const uint8_t length_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const uint32_t match_base[] = {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 37, 39, 41, 43, 47, 51, 59, 67, 83, 99, 131, 259, 515, 1027, 2051, 4099, 8195, 16387, 32771, 65539};
static const uint8_t match_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const int16_t length_counts[] = {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
static const int16_t offset_counts[] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};
static const int16_t match_counts[] = {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};

/* A table as its mode says, with what stands there of it. */
static int table_of(Fse *table, int mode, View *from, const int16_t *counts, int symbols, int log, int largest_log) {
  enum { PREDEFINED, SAME, DESCRIBED, REPEATED };
  uint64_t bytes = 0;
  if (mode == PREDEFINED) fse_build(table, counts, symbols, log);
  else if (mode == SAME) {
    if (!from->bytes || from->at[0] >= (largest_log == 8 ? 32 : symbols)) return 0;
    table->states[0] = (State){.symbol = from->at[0]};
    table->log = 0;
    bytes = 1;
  } else if (mode == DESCRIBED) {
    bytes = fse_read(table, *from, largest_log, largest_log == 8 ? 32 : symbols);
    if (!bytes || bytes > from->bytes) return 0;
  }
  *from = (View){from->at + bytes, from->bytes - bytes};
  return table->log >= 0;
}
static int copy(Decoder *d, uint64_t *used, uint64_t plain, uint64_t back, uint64_t copied) {
  if (plain > d->literal_count - *used || plain > d->room - d->done) return 0;
  memcpy(d->out + d->done, d->literals + *used, plain);
  *used += plain;
  d->done += plain;
  if (copied && (!back || back > d->done || copied > d->room - d->done)) return 0;
  for (uint64_t i = 0; i < copied; i++, d->done++) d->out[d->done] = d->out[d->done - back]; /* the two may overlap */
  return 1;
}
static uint64_t distance(Decoder *d, uint64_t said, int has_literals) { /* 3.1.1.5: 1 to 3 stand for earlier ones */
  uint64_t *r = d->repeated, which = said + !has_literals, back = said - 3;
  if (said <= 3) {
    back = which == 4 ? r[0] - 1 : r[which - 1];
    if (which == 1) return back;
    if (which != 2) r[2] = r[1];
  } else
    r[2] = r[1];
  r[1] = r[0];
  return r[0] = back;
}
static int sequences(Decoder *d, View from) {
  uint64_t used = 0, count, head = 1;
  if (!from.bytes) return 0;
  count = from.at[0];
  if (count >= 128) {
    head = count == 255 ? 3 : 2;
    if (head > from.bytes) return 0;
    count = count == 255 ? from.at[1] + ((uint64_t)from.at[2] << 8) + 0x7f00 : (count - 128) << 8 | from.at[1];
  }
  if (count) {
    Bits bits;
    if (head >= from.bytes) return 0;
    int modes = from.at[head];
    View rest = {from.at + head + 1, from.bytes - head - 1};
    if (!table_of(&d->lengths, modes >> 6, &rest, length_counts, 36, 6, 9)) return 0;
    if (!table_of(&d->offsets, modes >> 4 & 3, &rest, offset_counts, 29, 5, 8)) return 0;
    if (!table_of(&d->matches, modes >> 2 & 3, &rest, match_counts, 53, 6, 9)) return 0;
    if (!bits_open(&bits, rest)) return 0;
    unsigned length = fse_start(&d->lengths, &bits), offset = fse_start(&d->offsets, &bits), match = fse_start(&d->matches, &bits);
    for (uint64_t i = 0; i < count; i++) {
      int far = d->offsets.states[offset].symbol, long_ = d->matches.states[match].symbol, many = d->lengths.states[length].symbol;
      uint64_t said = ((uint64_t)1 << far) + bits_read(&bits, far);
      uint64_t copied = match_base[long_] + bits_read(&bits, match_bits[long_]);
      uint64_t plain = length_base[many] + bits_read(&bits, length_bits[many]);
      if (bits.left < 0 || !copy(d, &used, plain, distance(d, said, plain > 0), copied)) return 0;
      if (i + 1 == count) break;
      length = fse_next(&d->lengths, length, &bits);
      match = fse_next(&d->matches, match, &bits);
      offset = fse_next(&d->offsets, offset, &bits);
    }
    if (bits.left) return 0;
  }
  return copy(d, &used, d->literal_count - used, 0, 0);
}

/* -- frames and blocks (3.1.1) ------------------------------------------------------------------------------------------------ */

static int block(Decoder *d, int type, View from, uint64_t bytes) { /* bytes: of what a repeated byte becomes */
  enum { RAW, SAME, COMPRESSED };
  if (type == COMPRESSED) {
    uint64_t head = literals(d, from);
    return head ? sequences(d, (View){from.at + head, from.bytes - head}) : 0;
  }
  if (type > COMPRESSED || bytes > d->room - d->done) return 0;
  if (type == RAW) memcpy(d->out + d->done, from.at, bytes);
  else memset(d->out + d->done, from.at[0], bytes);
  d->done += bytes;
  return 1;
}
uint64_t zstd_expand(const void *packed, uint64_t packed_bytes, void *into, uint64_t room) {
  static const int dictionary_bytes[] = {0, 1, 2, 4}, size_bytes[] = {0, 2, 4, 8};
  View from = {packed, packed_bytes};
  Decoder *d = calloc(1, sizeof *d);
  if (!d || !(d->literals = malloc(LARGEST_BLOCK))) abort();
  *d = (Decoder){.out = into, .room = room, .literals = d->literals, .repeated = {1, 4, 8}};
  d->lengths.log = d->offsets.log = d->matches.log = -1;
  int said = from.bytes > 5 && peek(from, 0, 32) == 0xfd2fb528 ? from.at[4] : -1, alone = said >> 5 & 1, last = 0;
  uint64_t at = 5 + !alone + (uint64_t)dictionary_bytes[said & 3] + (uint64_t)(said >> 6 || !alone ? size_bytes[said >> 6 & 3] : 1);
  int able = said >= 0;
  while (able && !last) {
    if (at + 3 > from.bytes) { able = 0; break; }
    uint64_t word = peek(from, 8 * at, 24), bytes = word >> 3;
    int type = (int)(word >> 1 & 3);
    last = (int)(word & 1);
    at += 3;
    uint64_t held = type == 1 ? 1 : bytes;
    able = held <= from.bytes - at && block(d, type, (View){from.at + at, held}, bytes);
    at += held;
  }
  uint64_t done = able ? d->done : 0;
  free(d->literals);
  free(d);
  return done;
}
