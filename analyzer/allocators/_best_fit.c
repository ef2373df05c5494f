/* Best-fit allocators without objects: the search, the splitting and the joining of blocks, for those who simulate the same
 * requests hundreds of times.
 *
 * Two sets of rules on one heap: `peaks` is PyTorch's caching allocator (`pytorch/caching.py`, default settings, one
 * stream), `Blocks` the same one when it already holds something and is asked what it holds in the end, on several streams, `Chunks` the arena
 * of ONNX Runtime (`bfc.py`, `onnxruntime_bfc.py`, no limit). Those files are what the
 * allocators do and name the sources; property tests hold this one to them. All sizes and addresses count units. Where
 * memory of the device comes from is told by a function the caller gives.
 *
 * 1. A block knows its neighbours in its segment, so nothing joins across segments.
 * 2. The free blocks of a pool are an array sorted by size and then address: in the order of the search.
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { FREE = -1, OVER = -2, NONE = -1 };

/* More units than any device has, and few enough that sums of as many sizes as there are keys stay whole numbers. */
#define MOST_UNITS ((int64_t)1 << 40)
#define MOST_KEYS ((int64_t)1 << 22)

/* Streams whose segments `Blocks` keeps apart: each has a pool for small requests and one for large ones. */
enum { MOST_STREAMS = 32, POOLS = 2 * MOST_STREAMS };

typedef struct {
    int64_t address, size;
    int32_t before, after; /* the neighbours in the segment, or NONE; `after` also links blocks that are no more */
    int8_t pool, is_free;
    int8_t tagged; /* of an arena: taken by a run's stream in this stage */
} Block;

typedef struct {
    int32_t *blocks;
    Py_ssize_t count, room;
} Pool;

typedef struct {
    Block *blocks;
    Py_ssize_t count, room;
    int32_t spare; /* the first block that is no more, or NONE */
    Pool pools[POOLS];
    int32_t *live; /* of each key the block it has, or NONE */
    Py_ssize_t key_count;
    int64_t allocated, peak;
} Heap;

/* ------------------------------------------------------------------------------------------------------------ the heap */

static void heap_start(Heap *heap) {
    memset(heap, 0, sizeof *heap);
    heap->spare = NONE;
}

static void heap_end(Heap *heap) {
    PyMem_Free(heap->blocks);
    PyMem_Free(heap->live);
    for (int pool = 0; pool < POOLS; pool++)
        PyMem_Free(heap->pools[pool].blocks);
}

/* `items` with room for one more than `count`; NULL with MemoryError. */
static void *grown(void *items, Py_ssize_t count, Py_ssize_t *room, size_t item_bytes) {
    if (count < *room)
        return items;
    Py_ssize_t wider = *room ? 2 * *room : 64;
    void *moved = PyMem_Realloc(items, (size_t)wider * item_bytes);
    if (!moved) {
        PyErr_NoMemory();
        return NULL;
    }
    *room = wider;
    return moved;
}

/* A copy of `count` items, with room for no more; NULL with MemoryError. */
static void *copied(const void *items, Py_ssize_t count, size_t item_bytes) {
    void *copy = PyMem_Malloc((size_t)count * item_bytes);
    if (!copy)
        PyErr_NoMemory();
    else if (count)
        memcpy(copy, items, (size_t)count * item_bytes);
    return copy;
}

/* A new block between two others, or NONE with MemoryError. */
static int32_t block_new(Heap *heap, Block block) {
    int32_t at = heap->spare;
    if (at != NONE) {
        heap->spare = heap->blocks[at].after;
    } else {
        Block *blocks = grown(heap->blocks, heap->count, &heap->room, sizeof(Block));
        if (!blocks)
            return NONE;
        heap->blocks = blocks;
        at = (int32_t)heap->count++;
    }
    heap->blocks[at] = block;
    if (block.before != NONE)
        heap->blocks[block.before].after = at;
    if (block.after != NONE)
        heap->blocks[block.after].before = at;
    return at;
}

/* The place of the first block of the pool that is not before (size, address) in the order of the search. */
static Py_ssize_t pool_place(const Heap *heap, const Pool *pool, int64_t size, int64_t address) {
    Py_ssize_t low = 0, high = pool->count;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        const Block *block = &heap->blocks[pool->blocks[middle]];
        if (block->size < size || (block->size == size && block->address < address))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int pool_add(Heap *heap, int32_t at) {
    Block *block = &heap->blocks[at];
    Pool *pool = &heap->pools[block->pool];
    int32_t *blocks = grown(pool->blocks, pool->count, &pool->room, sizeof(int32_t));
    if (!blocks)
        return -1;
    pool->blocks = blocks;
    Py_ssize_t place = pool_place(heap, pool, block->size, block->address);
    memmove(blocks + place + 1, blocks + place, (size_t)(pool->count - place) * sizeof *blocks);
    blocks[place] = at;
    pool->count++;
    block->is_free = 1;
    return 0;
}

static int32_t pool_remove(Heap *heap, Pool *pool, Py_ssize_t place) {
    int32_t at = pool->blocks[place];
    pool->count--;
    memmove(pool->blocks + place, pool->blocks + place + 1, (size_t)(pool->count - place) * sizeof *pool->blocks);
    heap->blocks[at].is_free = 0;
    return at;
}

/* The rest of a block beyond `size` units becomes a free block behind it. */
static int block_cut(Heap *heap, int32_t at, int64_t size) {
    Block rest = heap->blocks[at];
    rest.address += size;
    rest.size -= size;
    rest.before = at;
    int32_t behind = block_new(heap, rest);
    if (behind == NONE)
        return -1;
    heap->blocks[at].size = size;
    return pool_add(heap, behind);
}

/* A block takes in the one behind it, which is in no pool any more. */
static void block_join(Heap *heap, int32_t at) {
    Block *block = &heap->blocks[at];
    int32_t behind = block->after;
    block->size += heap->blocks[behind].size;
    block->after = heap->blocks[behind].after;
    if (block->after != NONE)
        heap->blocks[block->after].before = at;
    heap->blocks[behind].after = heap->spare;
    heap->blocks[behind].is_free = 0;
    heap->spare = behind;
}

/* A segment of `size` units at `address` as one free block in no pool yet; NONE with MemoryError. */
static int32_t segment_new(Heap *heap, int64_t address, int64_t size, int pool) {
    Block block = {address, size, NONE, NONE, (int8_t)pool, 0, 0};
    return block_new(heap, block);
}

/* A free neighbour that a block being freed joins: only with the same tag. */
static int joins(const Heap *heap, int32_t at, int8_t tagged) {
    return at != NONE && heap->blocks[at].is_free && heap->blocks[at].tagged == tagged;
}

static void leave_pool(Heap *heap, int32_t at) {
    Block *block = &heap->blocks[at];
    Pool *pool = &heap->pools[block->pool];
    pool_remove(heap, pool, pool_place(heap, pool, block->size, block->address));
}

/* The key's block is free again and joins its neighbours; a key without one asked for no bytes. */
static int key_give(Heap *heap, int64_t key) {
    int32_t at = heap->live[key];
    if (at == NONE)
        return 0;
    heap->live[key] = NONE;
    heap->allocated -= heap->blocks[at].size;
    int8_t tagged = heap->blocks[at].tagged;
    if (joins(heap, heap->blocks[at].after, tagged)) {
        leave_pool(heap, heap->blocks[at].after);
        block_join(heap, at);
    }
    int32_t before = heap->blocks[at].before;
    if (joins(heap, before, tagged)) {
        leave_pool(heap, before);
        block_join(heap, before);
        at = before;
    }
    return pool_add(heap, at);
}

static void key_take(Heap *heap, int64_t key, int32_t at) {
    heap->live[key] = at;
    heap->allocated += heap->blocks[at].size;
    if (heap->allocated > heap->peak)
        heap->peak = heap->allocated;
}

/* ------------------------------------------------------------------------------------------------- what Python hands over */

/* A contiguous array of int64 as a view; -1 with an error. */
static int numbers(PyObject *array, Py_buffer *view) {
    if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS))
        return -1;
    if (view->itemsize == sizeof(int64_t))
        return 0;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_TypeError, "an array of int64 is needed");
    return -1;
}

/* What is simulation: `width` numbers an event, the first two a key and which size (or FREE, or OVER). */
typedef struct {
    Py_buffer event_view, unit_view;
    const int64_t *events, *units;
    Py_ssize_t count, width, unit_count;
} Script;

static void script_end(Script *script) {
    PyBuffer_Release(&script->event_view);
    PyBuffer_Release(&script->unit_view);
}

/* Opens both arrays and looks at every number once, so that simulating need not; keys get their places. -1 with an error. */
static int script_start(Script *script, Heap *heap, PyObject *events, PyObject *units, Py_ssize_t width) {
    if (numbers(events, &script->event_view))
        return -1;
    if (numbers(units, &script->unit_view)) {
        PyBuffer_Release(&script->event_view);
        return -1;
    }
    script->events = script->event_view.buf;
    script->units = script->unit_view.buf;
    script->width = width;
    script->count = script->event_view.len / (Py_ssize_t)sizeof(int64_t) / width;
    script->unit_count = script->unit_view.len / (Py_ssize_t)sizeof(int64_t);
    int64_t last = heap->key_count - 1;
    for (Py_ssize_t at = 0; at < script->count; at++) {
        int64_t key = script->events[at * width], number = script->events[at * width + 1];
        if (key < 0 || key >= MOST_KEYS || number < OVER || number >= script->unit_count) {
            PyErr_Format(PyExc_IndexError, "event %zd names a key or a size that is not there", at);
            goto failed;
        }
        if (number >= 0 && (script->units[number] < 0 || script->units[number] >= MOST_UNITS)) {
            PyErr_SetString(PyExc_OverflowError, "a request that no device can serve");
            goto failed;
        }
        last = key > last ? key : last;
    }
    if (last >= heap->key_count) {
        int32_t *live = PyMem_Realloc(heap->live, (size_t)(last + 1) * sizeof *live);
        if (!live) {
            PyErr_NoMemory();
            goto failed;
        }
        heap->live = live;
        while (heap->key_count <= last)
            live[heap->key_count++] = NONE;
    }
    return 0;
failed:
    script_end(script);
    return -1;
}

/* ------------------------------------------------------------------------------------- PyTorch's caching allocator: peaks */

static const int64_t MIB_UNITS = ((int64_t)1 << 20) / 512;

/* What PyTorch's allocator is beside its heap: all in units. take, give: where segments come from and go back to. refused: asked,
 * with the number of a size without room and the event, for the units to go on with, or None; it may lower later sizes. */
typedef struct {
    Heap heap;
    int64_t large_segment, limit, reserved, peak_reserved;
    PyObject *take, *give, *refused;
} Caching;

/* A new segment for a request of `size` units as a block in no pool: 1; 0 where the limit leaves no room; -1 with an error. */
static int caching_grow(Caching *caching, int64_t size, int pool, int32_t *block) {
    int64_t found = 2 * MIB_UNITS;
    if (pool % 2)
        found = size < 10 * MIB_UNITS ? caching->large_segment : (size + found - 1) / found * found;
    if (found > caching->limit - caching->reserved)
        return 0;
    PyObject *said = PyObject_CallFunction(caching->take, "Li", (long long)found, pool / 2);
    if (!said)
        return -1;
    int64_t address = PyLong_AsLongLong(said);
    Py_DECREF(said);
    if (address == -1 && PyErr_Occurred())
        return -1;
    *block = segment_new(&caching->heap, address, found, pool);
    caching->reserved += found;
    if (caching->reserved > caching->peak_reserved)
        caching->peak_reserved = caching->reserved;
    return *block == NONE ? -1 : 1;
}

/* Every wholly free segment goes back to the device: those of the large pool first, each pool's in the order of the search. */
static int caching_empty(Caching *caching) {
    Heap *heap = &caching->heap;
    for (int pool = 1; pool >= 0; pool--) {
        Pool *free_blocks = &heap->pools[pool];
        Py_ssize_t kept = 0, count = free_blocks->count;
        for (Py_ssize_t place = 0; place < count; place++) {
            int32_t at = free_blocks->blocks[place];
            Block *block = &heap->blocks[at];
            if (block->before != NONE || block->after != NONE) {
                free_blocks->blocks[kept++] = at;
                continue;
            }
            PyObject *said = PyObject_CallFunction(caching->give, "LL", (long long)block->address, (long long)block->size);
            if (!said)
                return -1; /* the heap is given up */
            Py_DECREF(said);
            caching->reserved -= block->size;
            block->is_free = 0;
            block->after = heap->spare;
            heap->spare = at;
        }
        free_blocks->count = kept;
    }
    return 0;
}

/* One request served: 1; 0 where there is no room; -1 with an error. */
static int caching_take(Caching *caching, int64_t key, int64_t size, int stream) {
    Heap *heap = &caching->heap;
    int large = size > MIB_UNITS, pool = 2 * stream + large;
    Pool *free_blocks = &heap->pools[pool];
    Py_ssize_t place = pool_place(heap, free_blocks, size, INT64_MIN);
    int32_t at;
    if (place < free_blocks->count) {
        at = pool_remove(heap, free_blocks, place);
    } else {
        int grown = caching_grow(caching, size, pool, &at);
        if (!grown)
            grown = caching_empty(caching) ? -1 : caching_grow(caching, size, pool, &at);
        if (grown <= 0)
            return grown;
    }
    if (heap->blocks[at].size - size > (large ? MIB_UNITS : 0) && block_cut(heap, at, size))
        return -1;
    key_take(heap, key, at);
    return 1;
}

/* The units that event `at` asks for now that size `number` has no room; NONE for no others, -2 with an error. */
static int64_t caching_less(Caching *caching, int64_t number, Py_ssize_t at) {
    if (!caching->refused || caching->refused == Py_None)
        return NONE;
    PyObject *said = PyObject_CallFunction(caching->refused, "Ln", (long long)number, at);
    if (!said)
        return -2;
    int64_t units = said == Py_None ? NONE : PyLong_AsLongLong(said);
    if (said != Py_None && units < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "a request for less than nothing");
    Py_DECREF(said);
    return PyErr_Occurred() ? -2 : units;
}

/* The script's event `at`: 1; 0 where there is no room; -1 with an error. */
static int caching_event(Caching *caching, const Script *script, Py_ssize_t at) {
    const int64_t *event = script->events + script->width * at;
    int64_t key = event[0], number = event[1], stream = script->width > 2 ? event[2] : 0;
    if (number < 0)
        return key_give(&caching->heap, key) ? -1 : 1;
    if (stream < 0 || stream >= MOST_STREAMS) {
        PyErr_Format(PyExc_IndexError, "event %zd names a stream that is not there", at);
        return -1;
    }
    int64_t units = script->units[number];
    while (units > 0) {
        int served = caching_take(caching, key, units, (int)stream);
        if (served)
            return served;
        units = caching_less(caching, number, at);
    }
    return units < 0 ? (units == NONE ? 0 : -1) : 1; /* for nothing there is always room */
}

/* The units of each key's block now, into an array of as many; -1 with an error. */
static int heap_held(const Heap *heap, PyObject *array) {
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE))
        return -1;
    int right = view.itemsize == sizeof(int64_t) && view.len >= heap->key_count * (Py_ssize_t)sizeof(int64_t);
    for (Py_ssize_t key = 0; right && key < heap->key_count; key++)
        ((int64_t *)view.buf)[key] = heap->live[key] == NONE ? 0 : heap->blocks[heap->live[key]].size;
    PyBuffer_Release(&view);
    if (!right)
        PyErr_SetString(PyExc_ValueError, "an array of int64 for every key is needed");
    return right ? 0 : -1;
}

static PyObject *peaks(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *events, *units, *held = Py_None;
    Py_ssize_t setup_count, peak_at = -1;
    long long large_segment, limit;
    Caching caching = {0};
    if (!PyArg_ParseTuple(
            arguments, "OOnLLOO|OO", &events, &units, &setup_count, &large_segment, &limit, &caching.take, &caching.give, &caching.refused, &held))
        return NULL;
    caching.large_segment = large_segment;
    caching.limit = limit;
    Heap *heap = &caching.heap;
    Script script;
    heap_start(heap);
    if (script_start(&script, heap, events, units, 2)) {
        heap_end(heap);
        return NULL;
    }
    int served = 1;
    for (Py_ssize_t at = 0; served > 0; at++) {
        if (at == setup_count) {
            heap->peak = heap->allocated;
            caching.peak_reserved = caching.reserved;
            peak_at = at - 1;
        }
        if (at == script.count)
            break;
        int64_t peak = heap->peak;
        served = caching_event(&caching, &script, at);
        if (heap->peak > peak)
            peak_at = at;
    }
    if (served >= 0 && held != Py_None && heap_held(heap, held))
        served = -1;
    script_end(&script);
    heap_end(heap);
    if (served < 0)
        return NULL;
    return Py_BuildValue("LLNn", (long long)heap->peak, (long long)caching.peak_reserved, PyBool_FromLong(served), peak_at);
}

/* ------------------------------------------------------------ PyTorch's caching allocator that already holds something: Blocks */

typedef struct {
    PyObject_HEAD
    Caching caching; /* `take` is of one call; without a limit nothing is given back */
} Blocks;

enum { ADDRESS, SIZE, POOL, FIRST, KEY, ROW }; /* the numbers of a row: POOL: twice its stream, and one more for large requests; FIRST of its segment; KEY, or NONE where it is free */

static PyObject *blocks_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    PyObject *rows;
    Py_ssize_t keys;
    long long large_segment;
    if (!PyArg_ParseTuple(arguments, "OnL", &rows, &keys, &large_segment))
        return NULL;
    Py_buffer view;
    if (keys < 0 || keys > MOST_KEYS || numbers(rows, &view)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "so many keys there are not");
        return NULL;
    }
    Blocks *self = PyObject_New(Blocks, type);
    if (!self) {
        PyBuffer_Release(&view);
        return NULL;
    }
    memset(&self->caching, 0, sizeof self->caching);
    self->caching.large_segment = large_segment;
    self->caching.limit = INT64_MAX;
    Heap *heap = &self->caching.heap;
    heap_start(heap);
    heap->live = PyMem_Malloc((size_t)(keys ? keys : 1) * sizeof *heap->live);
    int failed = !heap->live;
    if (failed)
        PyErr_NoMemory();
    while (!failed && heap->key_count < keys)
        heap->live[heap->key_count++] = NONE;
    const int64_t *row = view.buf;
    int32_t last = NONE;
    Py_ssize_t count = view.len / (Py_ssize_t)sizeof(int64_t) / ROW;
    for (Py_ssize_t at = 0; at < count && !failed; at++, row += ROW) {
        Block block = {row[ADDRESS], row[SIZE], row[FIRST] ? NONE : last, NONE, (int8_t)row[POOL], 0, 0};
        if (row[POOL] < 0 || row[POOL] >= POOLS) {
            PyErr_SetString(PyExc_IndexError, "a row names a pool that is not there");
            failed = 1;
            break;
        }
        last = block_new(heap, block);
        if (last == NONE) {
            failed = 1;
        } else if (row[KEY] == NONE) {
            failed = pool_add(heap, last);
        } else if (row[KEY] < 0 || row[KEY] >= keys) {
            PyErr_SetString(PyExc_IndexError, "a row names a key that is not there");
            failed = 1;
        } else {
            key_take(heap, row[KEY], last);
        }
    }
    PyBuffer_Release(&view);
    if (failed) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void blocks_end(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    heap_end(&((Blocks *)self)->caching.heap);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *blocks_simulate(PyObject *self, PyObject *arguments) {
    Caching *caching = &((Blocks *)self)->caching;
    PyObject *events, *units;
    Script script;
    if (!PyArg_ParseTuple(arguments, "OOO", &events, &units, &caching->take))
        return NULL;
    if (script_start(&script, &caching->heap, events, units, 3))
        return NULL;
    int served = 1;
    for (Py_ssize_t at = 0; at < script.count && served > 0; at++)
        served = caching_event(caching, &script, at);
    script_end(&script);
    if (served <= 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Every block there is, as rows in no order; FIRST is 0. */
static PyObject *blocks_rows(PyObject *self, PyObject *nothing) {
    (void)nothing;
    const Heap *heap = &((Blocks *)self)->caching.heap;
    Py_ssize_t count = heap->count;
    int64_t *rows = PyMem_Malloc((size_t)(count ? count : 1) * ROW * sizeof *rows);
    if (!rows)
        return PyErr_NoMemory();
    for (Py_ssize_t at = 0; at < count; at++) {
        const Block *block = &heap->blocks[at];
        const int64_t row[ROW] = {block->address, block->size, block->pool, 0, NONE};
        memcpy(rows + at * ROW, row, sizeof row);
    }
    for (Py_ssize_t key = 0; key < heap->key_count; key++)
        if (heap->live[key] != NONE)
            rows[heap->live[key] * ROW + KEY] = key;
    for (int32_t at = heap->spare; at != NONE; at = heap->blocks[at].after)
        rows[at * ROW + SIZE] = 0; /* it is no more */
    Py_ssize_t kept = 0;
    for (Py_ssize_t at = 0; at < count; at++)
        if (rows[at * ROW + SIZE])
            memmove(rows + kept++ * ROW, rows + at * ROW, ROW * sizeof *rows);
    PyObject *said = PyBytes_FromStringAndSize((const char *)rows, kept * ROW * (Py_ssize_t)sizeof *rows);
    PyMem_Free(rows);
    return said;
}

static PyObject *blocks_peak(PyObject *self, void *nothing) {
    (void)nothing;
    return PyLong_FromLongLong(((Blocks *)self)->caching.heap.peak);
}

static PyMethodDef blocks_methods[] = {
    {"simulate", blocks_simulate, METH_VARARGS, "simulate(events, units, take): goes on from what is held."},
    {"rows", blocks_rows, METH_NOARGS, "Every block, as bytes of int64."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef blocks_figures[] = {
    {"peak", blocks_peak, NULL, "Most units in use so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot blocks_slots[] = {
    {Py_tp_new, blocks_new},     {Py_tp_dealloc, blocks_end},     {Py_tp_methods, blocks_methods},
    {Py_tp_getset, blocks_figures}, {0, NULL},
};

static PyType_Spec blocks_spec = {
    "analyzer.allocators._best_fit.Blocks", sizeof(Blocks), 0, Py_TPFLAGS_DEFAULT, blocks_slots,
};

/* ------------------------------------------------------------------------------------------- ONNX Runtime's arena: Chunks */

typedef struct {
    PyObject_HEAD
    Heap heap;
    int64_t most_dead; /* units a chunk may have beyond a request without being split */
} Chunks;

/* The place of the first free chunk from `place` on that the request may take: without a stream, one without a tag. */
static Py_ssize_t arena_place(const Heap *heap, Py_ssize_t place, int8_t streamed) {
    const Pool *pool = &heap->pools[0];
    while (!streamed && place < pool->count && heap->blocks[pool->blocks[place]].tagged)
        place++;
    return place;
}

/* One request served: 1; 0 where `extend` has no room; -1 with an error. */
static int arena_take(Chunks *chunks, int64_t key, int64_t size, int8_t streamed, PyObject *extend) {
    Heap *heap = &chunks->heap;
    Pool *pool = &heap->pools[0];
    Py_ssize_t place = arena_place(heap, pool_place(heap, pool, size, INT64_MIN), streamed);
    if (place == pool->count) {
        PyObject *said = PyObject_CallFunction(extend, "L", (long long)size);
        if (!said || said == Py_None) {
            Py_XDECREF(said);
            return said ? 0 : -1;
        }
        long long address, found;
        int right = PyArg_ParseTuple(said, "LL", &address, &found);
        Py_DECREF(said);
        if (!right)
            return -1;
        int32_t region = segment_new(heap, address, found, 0);
        if (region == NONE || pool_add(heap, region))
            return -1;
        place = arena_place(heap, pool_place(heap, pool, size, INT64_MIN), streamed);
        if (place == pool->count) {
            PyErr_SetString(PyExc_ValueError, "the new region is smaller than the request");
            return -1;
        }
    }
    int32_t at = pool_remove(heap, pool, place);
    int64_t found = heap->blocks[at].size;
    if ((found >= 2 * size || found - size >= chunks->most_dead) && block_cut(heap, at, size))
        return -1;
    heap->blocks[at].tagged = streamed;
    key_take(heap, key, at);
    return 1;
}

/* A stage is over: no tags, all free neighbours joined. */
static int arena_over(Heap *heap) {
    Pool *pool = &heap->pools[0];
    Py_ssize_t count = 0;
    for (Py_ssize_t at = 0; at < heap->count; at++)
        heap->blocks[at].tagged = 0;
    for (Py_ssize_t place = 0; place < pool->count; place++) {
        int32_t at = pool->blocks[place], before = heap->blocks[at].before;
        if (before == NONE || !heap->blocks[before].is_free)
            pool->blocks[count++] = at; /* the first of its row */
    }
    Pool firsts = *pool;
    memset(pool, 0, sizeof *pool);
    int failed = 0;
    for (Py_ssize_t place = 0; place < count && !failed; place++) {
        int32_t at = firsts.blocks[place];
        while (heap->blocks[at].after != NONE && heap->blocks[heap->blocks[at].after].is_free)
            block_join(heap, at);
        failed = pool_add(heap, at);
    }
    PyMem_Free(firsts.blocks);
    return failed;
}

static PyObject *chunks_simulate(PyObject *self, PyObject *arguments) {
    Chunks *chunks = (Chunks *)self;
    PyObject *events, *units, *extend;
    if (!PyArg_ParseTuple(arguments, "OOO", &events, &units, &extend))
        return NULL;
    Script script;
    if (script_start(&script, &chunks->heap, events, units, 3))
        return NULL;
    int served = 1;
    for (Py_ssize_t at = 0; at < script.count && served > 0; at++) {
        const int64_t *event = script.events + 3 * at;
        if (event[1] == OVER)
            served = arena_over(&chunks->heap) ? -1 : 1;
        else if (event[1] == FREE)
            served = key_give(&chunks->heap, event[0]) ? -1 : 1;
        else if (script.units[event[1]])
            served = arena_take(chunks, event[0], script.units[event[1]], event[2] != 0, extend);
    }
    script_end(&script);
    return served < 0 ? NULL : PyBool_FromLong(served);
}

static PyObject *chunks_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    (void)keywords;
    long long most_dead;
    if (!PyArg_ParseTuple(arguments, "L", &most_dead))
        return NULL;
    Chunks *chunks = PyObject_New(Chunks, type);
    if (chunks) {
        heap_start(&chunks->heap);
        chunks->most_dead = most_dead;
    }
    return (PyObject *)chunks;
}

static void chunks_end(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    heap_end(&((Chunks *)self)->heap);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *chunks_copy(PyObject *self, PyObject *nothing) {
    (void)nothing;
    const Chunks *chunks = (const Chunks *)self;
    Chunks *copy = PyObject_New(Chunks, Py_TYPE(self));
    if (!copy)
        return NULL;
    const Heap *heap = &chunks->heap;
    const Pool *pool = &heap->pools[0];
    copy->most_dead = chunks->most_dead;
    copy->heap = *heap; /* an arena has one pool: the other is empty */
    copy->heap.room = heap->count;
    copy->heap.blocks = copied(heap->blocks, heap->count, sizeof(Block));
    copy->heap.live = copied(heap->live, heap->key_count, sizeof(int32_t));
    copy->heap.pools[0].room = pool->count;
    copy->heap.pools[0].blocks = copied(pool->blocks, pool->count, sizeof(int32_t));
    if (!copy->heap.blocks || !copy->heap.live || !copy->heap.pools[0].blocks) {
        Py_DECREF(copy);
        return NULL;
    }
    return (PyObject *)copy;
}

static PyObject *chunks_peak(PyObject *self, void *nothing) {
    (void)nothing;
    return PyLong_FromLongLong(((Chunks *)self)->heap.peak);
}

static PyMethodDef chunks_methods[] = {
    {"simulate", chunks_simulate, METH_VARARGS, "simulate(events, units, extend): False where `extend` has no room."},
    {"copy", chunks_copy, METH_NOARGS, "The same chunks once more."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef chunks_figures[] = {
    {"peak", chunks_peak, NULL, "Most units in use so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot chunks_slots[] = {
    {Py_tp_new, chunks_new},     {Py_tp_dealloc, chunks_end},     {Py_tp_methods, chunks_methods},
    {Py_tp_getset, chunks_figures}, {0, NULL},
};

static PyType_Spec chunks_spec = {
    "analyzer.allocators._best_fit.Chunks", sizeof(Chunks), 0, Py_TPFLAGS_DEFAULT, chunks_slots,
};

/* ------------------------------------------------------------------------------------------------------------- the module */

static int type_added(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromSpec(spec);
    if (!type)
        return -1;
    int failed = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return failed;
}

static int module_filled(PyObject *module) {
    return type_added(module, "Chunks", &chunks_spec) || type_added(module, "Blocks", &blocks_spec) ? -1 : 0;
}

static PyMethodDef module_methods[] = {
    {"peaks", peaks, METH_VARARGS, "peaks(events, units, setup_count, large_segment, limit, take, give, refused=None, held=None): allocated and reserved, in units, whether all is served, and the event at which most was allocated."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_filled}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_best_fit", NULL, 0, module_methods, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__best_fit(void) { return PyModuleDef_Init(&module); }
