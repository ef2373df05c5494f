/* NCCL's host functions (nccl.h of 2.21 to 2.28), for ranks that are processes of one emulated job.

   A collective is done as soon as it is called. What it computes is known where it may steer the program: integers of as many bytes
   as are known of a tensor, and single numbers, are carried from rank to rank by the analyzer (`extensions/analyzer_emulation/exchange.py`), and their
   callers wait for each other. All other results are numbers that nobody computes; for those nobody waits. The rule follows from count and type
   alone, which are the same on all ranks.

   What NCCL holds of the device, and when, follows `analyzer/libraries/nccl.py`; the bytes come from there. Its versions and texts of errors
   are the library's own. */
#include "emulated.h"
#include "question.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CUDA_ERROR = 1, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4 }; /* ncclResult_t */
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, HALF, FLOAT, DOUBLE, BFLOAT, FLOAT8_1, FLOAT8_2, TYPES }; /* ncclDataType_t */
enum { SUM, PROD, MAX, MIN, AVG, OPERATIONS };                                                   /* ncclRedOp_t */
static const int type_bytes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
typedef struct { char text[128]; } UniqueId;

/* What NCCL takes of a device for a communicator of so many ranks, as `nccl.figures` names them. */
typedef struct { int64_t code, exchange_code, communicator, ring, send, receive; } Figures;
typedef struct { int global; uint64_t sent, received; } Peer; /* its rank in the job; how many messages went to it and came from it */
typedef struct {
  char key[96];
  int rank, size, device, has_ring;
  uint64_t collectives, held; /* held: bytes of the device */
  Figures figures;
  Peer *peers;
} Comm;

typedef enum { INIT, SPLIT, ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER, SEND, RECEIVE } Kind;
typedef struct {
  Kind kind;
  Comm *comm, *made; /* made: by a split; NULL where this rank is in none */
  uint64_t from, to, count, number;
  int type, operation, root, color, order;
  void *stream;
} Call;

/* Within a group calls wait for its end (ncclGroupStart). */
static _Thread_local Call *calls;
static _Thread_local size_t call_count, call_room;
static _Thread_local int depth;
static _Thread_local char last_error[256];

static int failed(int code, const char *why) {
  snprintf(last_error, sizeof last_error, "%s", why);
  return code;
}

/* -- words between ranks ---------------------------------------------------------------------------------------------- */

static void channel_of(char *into, size_t room, const Call *call, int from, int to) {
  if (call->kind == SEND || call->kind == RECEIVE) snprintf(into, room, "%s from %d to %d: %llu", call->comm->key, from, to, (unsigned long long)call->number);
  else snprintf(into, room, "%s from %d: %llu", call->comm->key, from, (unsigned long long)call->number);
}
static int say(const Call *call, int to, int listeners, int64_t count, const int64_t *words) {
  char channel[192];
  struct line line = {0};
  int64_t *numbers;
  channel_of(channel, sizeof channel, call, call->comm->rank, to);
  line_add(&line, "{\"about\":\"say\",\"channel\":\"%s\",\"listeners\":%d", channel, listeners);
  line_add_numbers(&line, "words", count, words);
  line_add(&line, "}");
  int64_t found = question_wait(&line, &numbers);
  free(numbers);
  return found < 0 ? failed(SYSTEM_ERROR, "the analyzer does not answer") : OK;
}
/* Returns how many words there are, which the caller frees; -1 where they never come. */
static int64_t hear(const Call *call, int from, int to, int64_t **words) {
  char channel[192];
  struct line line = {0};
  channel_of(channel, sizeof channel, call, from, to);
  line_add(&line, "{\"about\":\"hear\",\"channel\":\"%s\",\"rank\":%d}", channel, call->comm->peers[from].global);
  int64_t found = question_wait(&line, words);
  if (found < 0) failed(SYSTEM_ERROR, "another rank took no part in a collective");
  return found;
}

/* -- what is held of the device --------------------------------------------------------------------------------------- */

static int hold(Comm *comm, int64_t bytes) {
  int has;
  LOCKED has = process_holds(comm->device, bytes);
  if (!has) return failed(CUDA_ERROR, "out of memory");
  comm->held += (uint64_t)bytes;
  return OK;
}
static int64_t loaded[DEVICES][2]; /* bytes of the library's code, and of that for messages */
static int load_code(const Comm *comm, int which, int64_t bytes) { /* stays; a rank alone needs less of it than several */
  int has = 1;
  LOCKED {
    int64_t more = bytes - loaded[comm->device][which];
    if (more > 0 && (has = process_holds(comm->device, more))) loaded[comm->device][which] = bytes;
  }
  return has ? OK : failed(CUDA_ERROR, "out of memory");
}
ANSWER int emulated_sent_messages(int device) { return loaded[device][1] > 0; }
static int occupy(Comm *comm) {
  struct line line = {0};
  int64_t *told;
  line_add(&line, "{\"about\":\"nccl\",\"size\":%d}", comm->size);
  int64_t count = question_ask(&line, &told);
  if (count == 6) comm->figures = (Figures){told[0], told[1], told[2], told[3], told[4], told[5]};
  free(told);
  if (count != 6) return failed(SYSTEM_ERROR, "the analyzer does not answer");
  int code = load_code(comm, 0, comm->figures.code);
  return code ? code : hold(comm, comm->figures.communicator);
}
static int connect_ring(Comm *comm) {
  if (comm->has_ring || comm->size == 1) return OK;
  comm->has_ring = 1;
  return hold(comm, comm->figures.ring);
}
static int connect_peer(Comm *comm, int peer, int is_first, int64_t bytes) {
  if (!is_first || peer == comm->rank) return OK;
  int code = load_code(comm, 1, comm->figures.exchange_code);
  return code ? code : hold(comm, bytes);
}

/* -- communicators ---------------------------------------------------------------------------------------------------- */

static Comm *new_comm(const char *key, int rank, int size, int device) {
  Comm *comm = calloc(1, sizeof *comm);
  if (!comm || !(comm->peers = calloc((size_t)(size > 0 ? size : 1), sizeof *comm->peers))) { free(comm); return NULL; }
  snprintf(comm->key, sizeof comm->key, "%s", key);
  comm->rank = rank;
  comm->size = size;
  comm->device = device;
  return comm;
}
static void free_comm(Comm *comm) {
  if (!comm) return;
  LOCKED process_holds(comm->device, -(int64_t)comm->held);
  free(comm->peers);
  free(comm);
}
static int global_rank(void) { const char *said = getenv("RANK"); return said ? atoi(said) : 0; }

/* -- values ----------------------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(const Call *call) { return call->count * (uint64_t)type_bytes[call->type]; }
/* Of what a rank gives: how many times `count` elements. */
static uint64_t given_bytes(const Call *call) {
  int many = call->kind == REDUCE_SCATTER || call->kind == ALL_TO_ALL || call->kind == SCATTER;
  return bytes_of(call) * (uint64_t)(many ? call->comm->size : 1);
}
static int is_carried(const Call *call) {
  if (!call->count) return 0;
  return call->type <= UINT64 ? given_bytes(call) <= the_device()->known : call->count == 1;
}
/* The first word: whether the bytes are known (1), and whether they stand in for something (2). */
static int say_given(const Call *call, int to, int listeners) {
  uint64_t bytes = given_bytes(call);
  int64_t count = 1, *words = calloc(1 + (bytes + 7) / 8, sizeof *words);
  if (!words) return failed(SYSTEM_ERROR, "no memory left on this machine");
  LOCKED {
    if (contents_get(call->from, bytes, words + 1)) {
      words[0] = 1 | (contents_stand_in(call->from, bytes) ? 2 : 0);
      count = 1 + (int64_t)((bytes + 7) / 8);
    }
  }
  int code = say(call, to, listeners, count, words);
  free(words);
  return code;
}
static void keep(const Call *call, uint64_t offset, uint64_t bytes, const void *value, int stands_in) {
  LOCKED {
    contents_set(call->to + offset, bytes, value);
    if (stands_in) contents_mark(call->to + offset, bytes, 2);
  }
}
static void forget(uint64_t address, uint64_t bytes) { LOCKED contents_forget(address, bytes); }

#define COMBINE(T)                                                                                                      \
  do {                                                                                                                  \
    T *into = all, value;                                                                                               \
    for (uint64_t i = 0; i < count; i++) {                                                                              \
      memcpy(&value, (const char *)with + i * sizeof value, sizeof value);                                              \
      switch (operation) {                                                                                              \
        case SUM: case AVG: into[i] = (T)(into[i] + value); break;                                                      \
        case PROD: into[i] = (T)(into[i] * value); break;                                                               \
        case MAX: if (value > into[i]) into[i] = value; break;                                                          \
        default: if (value < into[i]) into[i] = value; break;                                                           \
      }                                                                                                                 \
    }                                                                                                                   \
  } while (0)
#define DIVIDE(T) do { T *into = all; for (uint64_t i = 0; i < count; i++) into[i] = (T)(into[i] / (T)ranks); } while (0)
#define BY_TYPE(DO)                                                                                                     \
  switch (type) {                                                                                                       \
    case INT8: DO(int8_t); break;                                                                                       \
    case UINT8: DO(uint8_t); break;                                                                                     \
    case INT32: DO(int32_t); break;                                                                                     \
    case UINT32: DO(uint32_t); break;                                                                                   \
    case INT64: DO(int64_t); break;                                                                                     \
    case UINT64: DO(uint64_t); break;                                                                                   \
    case FLOAT: DO(float); break;                                                                                       \
    case DOUBLE: DO(double); break;                                                                                     \
  }
static int can_combine(int type, int operation) { return operation < OPERATIONS && (type <= UINT64 || type == FLOAT || type == DOUBLE); }
static void combine(void *all, const void *with, uint64_t count, int type, int operation) { BY_TYPE(COMBINE) }
static void divide(void *all, uint64_t count, int type, int ranks) { BY_TYPE(DIVIDE) }

/* -- a call: first it says what it gives, then it hears what others give ----------------------------------------------- */

static int start(Call *call) {
  Comm *comm = call->comm;
  int64_t words[2];
  int code = OK;
  if (call->kind == INIT) {
    words[0] = global_rank();
    return say(call, -1, comm->size, 1, words);
  }
  if (call->kind == SPLIT) {
    words[0] = call->color;
    words[1] = call->order;
    return say(call, -1, comm->size, 2, words);
  }
  if (call->kind <= REDUCE_SCATTER) code = connect_ring(comm);
  else if (call->kind == SEND) code = connect_peer(comm, call->root, !call->number, comm->figures.send);
  else if (call->kind == RECEIVE) code = connect_peer(comm, call->root, !call->number, comm->figures.receive);
  else /* messages between ranks (nccl.h) */
    for (int peer = 0; peer < comm->size && !code; peer++) {
      int sends = call->kind == ALL_TO_ALL || (call->kind == GATHER ? peer == call->root : comm->rank == call->root);
      int receives = call->kind == ALL_TO_ALL || (call->kind == GATHER ? comm->rank == call->root : peer == call->root);
      if (sends) code = connect_peer(comm, peer, !comm->peers[peer].sent++, comm->figures.send);
      if (receives && !code) code = connect_peer(comm, peer, !comm->peers[peer].received++, comm->figures.receive);
    }
  captured(call->stream);
  if (call->kind <= REDUCE_SCATTER) collective_begins(call->stream);
  if (code || !is_carried(call)) return code;
  switch (call->kind) {
    case SEND: return say_given(call, call->root, 1);
    case RECEIVE: return OK;
    case BROADCAST: case SCATTER: return comm->rank == call->root ? say_given(call, -1, comm->size) : OK;
    case REDUCE: case GATHER: return say_given(call, -1, 1);
    default: return say_given(call, -1, comm->size);
  }
}

static int joined_ranks(Call *call) { /* everyone's rank in the job */
  Comm *comm = call->comm;
  for (int peer = 0; peer < comm->size; peer++) comm->peers[peer].global = -1;
  for (int peer = 0; peer < comm->size; peer++) {
    int64_t *words;
    if (hear(call, peer, -1, &words) != 1) return SYSTEM_ERROR;
    comm->peers[peer].global = (int)words[0];
    free(words);
  }
  return occupy(comm);
}
static int split(Call *call) { /* of one color, by key and then by rank (nccl.h) */
  Comm *comm = call->comm, *made = call->made;
  if (made) made->size = made->rank = 0;
  int64_t *orders = calloc((size_t)comm->size, sizeof *orders), code = OK;
  for (int peer = 0; peer < comm->size && !code; peer++) {
    int64_t *words;
    if (hear(call, peer, -1, &words) != 2) { code = SYSTEM_ERROR; break; }
    if (made && words[0] == call->color) {
      int at = made->size++;
      for (; at > 0 && orders[at - 1] > words[1]; at--) { orders[at] = orders[at - 1]; made->peers[at] = made->peers[at - 1]; }
      orders[at] = words[1];
      made->peers[at] = (Peer){.global = comm->peers[peer].global};
      if (peer == comm->rank) made->rank = at;
      else if (peer > comm->rank && at <= made->rank) made->rank++;
    }
    free(words);
  }
  free(orders);
  return code || !made ? (int)code : occupy(made);
}
/* What several ranks give, heard one after another. */
static int gather(const Call *call) {
  uint64_t bytes = bytes_of(call);
  int is_sum = call->kind == ALL_REDUCE || call->kind == REDUCE || call->kind == REDUCE_SCATTER, size = call->comm->size;
  int known = !is_sum || can_combine(call->type, call->operation), stands_in = 0, code = OK;
  uint64_t mine = call->kind == REDUCE_SCATTER || call->kind == ALL_TO_ALL ? bytes * (uint64_t)call->comm->rank : 0;
  void *all = is_sum ? malloc(bytes + 8) : NULL;
  for (int peer = 0; peer < size && !code; peer++) {
    int64_t *words, count = hear(call, peer, -1, &words);
    if (count < 1) { code = SYSTEM_ERROR; break; }
    const char *given = (const char *)(words + 1) + mine;
    int has = (words[0] & 1) && (uint64_t)(count - 1) * 8 >= given_bytes(call);
    if (!is_sum) {
      if (has) keep(call, bytes * (uint64_t)peer, bytes, given, (words[0] & 2) != 0);
      else forget(call->to + bytes * (uint64_t)peer, bytes);
    } else if (has && known) {
      stands_in |= (words[0] & 2) != 0;
      if (!peer) memcpy(all, given, bytes);
      else combine(all, given, call->count, call->type, call->operation);
    } else known = 0;
    free(words);
  }
  if (is_sum && !code) {
    if (known && call->operation == AVG) divide(all, call->count, call->type, size);
    if (known) keep(call, 0, bytes, all, stands_in);
    else forget(call->to, bytes);
  }
  free(all);
  return code;
}
static int take_one(const Call *call, int from, int to, uint64_t offset) {
  uint64_t bytes = bytes_of(call);
  int64_t *words, count = hear(call, from, to, &words);
  if (count < 1) return SYSTEM_ERROR;
  if ((words[0] & 1) && (uint64_t)(count - 1) * 8 >= offset + bytes) keep(call, 0, bytes, (const char *)(words + 1) + offset, (words[0] & 2) != 0);
  else forget(call->to, bytes);
  free(words);
  return OK;
}
static int finish(Call *call) {
  Comm *comm = call->comm;
  int is_root = comm->rank == call->root;
  if (call->kind == INIT) return joined_ranks(call);
  if (call->kind == SPLIT) return split(call);
  if (call->kind == SEND || ((call->kind == REDUCE || call->kind == GATHER) && !is_root)) return OK;
  if (!is_carried(call)) {
    int many = call->kind == ALL_GATHER || call->kind == ALL_TO_ALL || call->kind == GATHER;
    if (call->from != call->to || call->kind != BROADCAST || !is_root) forget(call->to, bytes_of(call) * (uint64_t)(many ? comm->size : 1));
    return OK;
  }
  if (call->kind == RECEIVE) return take_one(call, call->root, comm->rank, 0);
  if (call->kind == BROADCAST) return take_one(call, call->root, -1, 0);
  if (call->kind == SCATTER) return take_one(call, call->root, -1, bytes_of(call) * (uint64_t)comm->rank);
  return gather(call);
}
/* Everything is said before anything is waited for: what a group holds cannot block itself. */
static int carry_out(void) {
  int code = OK;
  Call *waiting = calls;
  size_t count = call_count;
  calls = NULL;
  call_count = call_room = 0;
  for (size_t i = 0; i < count && !code; i++) code = start(&waiting[i]);
  for (size_t i = 0; i < count && !code; i++) code = finish(&waiting[i]);
  free(waiting);
  return code;
}
static int add(Call call) {
  if (call_count == call_room) {
    Call *more = realloc(calls, (call_room = call_room ? 2 * call_room : 16) * sizeof *calls);
    if (!more) return failed(SYSTEM_ERROR, "no memory left on this machine");
    calls = more;
  }
  calls[call_count++] = call;
  return depth ? OK : carry_out();
}

/* -- nccl.h: communicators -------------------------------------------------------------------------------------------- */

ANSWER int ncclGetUniqueId(UniqueId *id) {
  static _Atomic int made;
  memset(id, 0, sizeof *id);
  snprintf(id->text, sizeof id->text, "%d.%d", (int)getpid(), ++made);
  return OK;
}
ANSWER int ncclCommInitRankConfig(Comm **comm, int size, UniqueId id, int rank, const void *config) {
  (void)config;
  if (size < 1 || rank < 0 || rank >= size) return failed(INVALID_ARGUMENT, "there is no such rank");
  id.text[64] = 0;
  if (!id.text[0] || strspn(id.text, "0123456789.") != strlen(id.text)) return failed(INVALID_ARGUMENT, "an id that ncclGetUniqueId did not make");
  *comm = new_comm(id.text, rank, size, current_device());
  if (!*comm) return failed(SYSTEM_ERROR, "no memory left on this machine");
  return add((Call){.kind = INIT, .comm = *comm, .number = (*comm)->collectives++});
}
ANSWER int ncclCommInitRank(Comm **comm, int size, UniqueId id, int rank) { return ncclCommInitRankConfig(comm, size, id, rank, NULL); }
ANSWER int ncclCommInitRankScalable(Comm **comm, int size, int rank, int id_count, UniqueId *ids, const void *config) {
  return id_count < 1 ? failed(INVALID_ARGUMENT, "no id") : ncclCommInitRankConfig(comm, size, ids[0], rank, config);
}
ANSWER int ncclGroupStart(void) { depth++; return OK; }
ANSWER int ncclGroupEnd(void) {
  if (!depth) return failed(5, "ncclGroupEnd without ncclGroupStart"); /* ncclInvalidUsage */
  return --depth ? OK : carry_out();
}
ANSWER int ncclCommInitAll(Comm **comms, int count, const int *devices) {
  UniqueId id;
  int code = OK;
  ncclGetUniqueId(&id);
  ncclGroupStart();
  for (int i = 0; i < count && !code; i++) {
    code = ncclCommInitRank(&comms[i], count, id, i);
    if (!code) comms[i]->device = devices ? devices[i] : i;
    if (!code && (comms[i]->device < 0 || comms[i]->device >= the_device()->count)) code = failed(INVALID_ARGUMENT, "there is no such device");
  }
  if (code) call_count = 0;
  int end = ncclGroupEnd();
  return code ? code : end;
}
ANSWER int ncclCommSplit(Comm *comm, int color, int key, Comm **made, const void *config) {
  (void)config;
  char name[96];
  if (strlen(comm->key) > 60) return failed(INVALID_ARGUMENT, "a split of a split of a split: too many");
  snprintf(name, sizeof name, "%.60s/%llu.%d", comm->key, (unsigned long long)comm->collectives, color);
  *made = color < 0 ? NULL : new_comm(name, 0, comm->size, comm->device); /* NCCL_SPLIT_NOCOLOR: in none */
  if (color >= 0 && !*made) return failed(SYSTEM_ERROR, "no memory left on this machine");
  return add((Call){.kind = SPLIT, .comm = comm, .made = *made, .color = color, .order = key, .number = comm->collectives++});
}
ANSWER int ncclCommFinalize(Comm *comm) { (void)comm; return OK; }
ANSWER int ncclCommDestroy(Comm *comm) { free_comm(comm); return OK; }
ANSWER int ncclCommAbort(Comm *comm) { free_comm(comm); return OK; }
ANSWER int ncclCommGetAsyncError(Comm *comm, int *error) { (void)comm; *error = OK; return OK; }
ANSWER int ncclCommCount(const Comm *comm, int *count) { *count = comm->size; return OK; }
ANSWER int ncclCommCuDevice(const Comm *comm, int *device) { *device = comm->device; return OK; }
ANSWER int ncclCommUserRank(const Comm *comm, int *rank) { *rank = comm->rank; return OK; }
ANSWER const char *ncclGetLastError(const Comm *comm) { (void)comm; return last_error; }
ANSWER int ncclMemAlloc(void **address, size_t bytes) { /* whole pages, as memory that can be mapped elsewhere is (cuMemCreate) */
  uint64_t whole = (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
  LOCKED *address = bytes ? (void *)(uintptr_t)device_take(current_device(), whole) : NULL;
  return *address || !bytes ? OK : failed(CUDA_ERROR, "out of memory");
}
ANSWER int ncclMemFree(void *address) {
  uint64_t given = 1;
  if (address) LOCKED given = device_give((uint64_t)(uintptr_t)address);
  return given ? OK : failed(INVALID_ARGUMENT, "nothing lies there");
}
ANSWER int ncclCommRegister(Comm *comm, void *buffer, size_t bytes, void **handle) { (void)comm; (void)buffer; (void)bytes; *handle = new_handle(); return OK; }
ANSWER int ncclCommDeregister(Comm *comm, void *handle) { (void)comm; (void)handle; return OK; }
/* A sum of numbers that were multiplied before: never combined here. */
ANSWER int ncclRedOpCreatePreMulSum(int *operation, void *scalar, int type, int residence, Comm *comm) {
  (void)scalar; (void)type; (void)residence; (void)comm;
  static _Atomic int made = OPERATIONS;
  *operation = made++;
  return OK;
}
ANSWER int ncclRedOpDestroy(int operation, Comm *comm) { (void)operation; (void)comm; return OK; }

/* -- nccl.h: collectives and messages --------------------------------------------------------------------------------- */

static int collective(Kind kind, const void *from, void *to, size_t count, int type, int operation, int root, Comm *comm, void *stream) {
  if (!comm || type < 0 || type >= TYPES || root < 0 || root >= comm->size) return failed(INVALID_ARGUMENT, "no communicator, no such type, or no such rank");
  Peer *peer = &comm->peers[root];
  uint64_t number = kind == SEND ? peer->sent++ : kind == RECEIVE ? peer->received++ : comm->collectives++;
  return add((Call){.kind = kind, .comm = comm, .from = (uint64_t)(uintptr_t)from, .to = (uint64_t)(uintptr_t)to, .count = count, .number = number,
                    .type = type, .operation = operation, .root = root, .stream = stream});
}
ANSWER int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, Comm *comm, void *stream) { return collective(ALL_REDUCE, from, to, count, type, operation, 0, comm, stream); }
ANSWER int ncclReduce(const void *from, void *to, size_t count, int type, int operation, int root, Comm *comm, void *stream) { return collective(REDUCE, from, to, count, type, operation, root, comm, stream); }
ANSWER int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, Comm *comm, void *stream) { return collective(BROADCAST, from, to, count, type, 0, root, comm, stream); }
ANSWER int ncclBcast(void *buffer, size_t count, int type, int root, Comm *comm, void *stream) { return collective(BROADCAST, buffer, buffer, count, type, 0, root, comm, stream); }
ANSWER int ncclAllGather(const void *from, void *to, size_t count, int type, Comm *comm, void *stream) { return collective(ALL_GATHER, from, to, count, type, 0, 0, comm, stream); }
ANSWER int ncclReduceScatter(const void *from, void *to, size_t count, int type, int operation, Comm *comm, void *stream) { return collective(REDUCE_SCATTER, from, to, count, type, operation, 0, comm, stream); }
ANSWER int ncclAlltoAll(const void *from, void *to, size_t count, int type, Comm *comm, void *stream) { return collective(ALL_TO_ALL, from, to, count, type, 0, 0, comm, stream); }
ANSWER int ncclGather(const void *from, void *to, size_t count, int type, int root, Comm *comm, void *stream) { return collective(GATHER, from, to, count, type, 0, root, comm, stream); }
ANSWER int ncclScatter(const void *from, void *to, size_t count, int type, int root, Comm *comm, void *stream) { return collective(SCATTER, from, to, count, type, 0, root, comm, stream); }
ANSWER int ncclSend(const void *from, size_t count, int type, int peer, Comm *comm, void *stream) { return collective(SEND, from, NULL, count, type, 0, peer, comm, stream); }
ANSWER int ncclRecv(void *to, size_t count, int type, int peer, Comm *comm, void *stream) { return collective(RECEIVE, NULL, to, count, type, 0, peer, comm, stream); }
