/* Streams and events: what is given to a stream is done at once, so everything is complete, in order. A stream that is being
   captured counts its nodes; a graph is that count. A stream that waits for an event of such a stream is captured into the same
   graph, until that stream's capture ends (CUDA C++ Programming Guide, "Cross-stream Dependencies and Events"). */
#include "emulated.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

void *new_handle(void) { static _Atomic uintptr_t last = 0x10000; return (void *)(last += 64); }

#define STREAMS 4096
typedef struct { void *stream; int priority, capturing; uint64_t id; struct Graph *graph; } Stream;
typedef struct Graph { uint64_t magic; size_t nodes; } Graph;
static Stream streams[STREAMS];
static size_t stream_count;
static uint64_t captures;

static Stream *stream_of(void *stream) { /* capture is asked for streams that were not made here, too: the default one */
  for (size_t i = 0; i < stream_count; i++) if (streams[i].stream == stream) return &streams[i];
  if (stream_count == STREAMS) return NULL;
  streams[stream_count] = (Stream){.stream = stream};
  return &streams[stream_count++];
}
void captured(void *stream) { LOCKED { Stream *s = stream_of(stream); if (s && s->capturing) s->graph->nodes++; } }

ANSWER int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  (void)flags;
  *stream = new_handle();
  LOCKED { Stream *s = stream_of(*stream); if (s) s->priority = priority; process_streams(); }
  return OK;
}
ANSWER int cudaStreamCreateWithFlags(void **stream, unsigned flags) { return cudaStreamCreateWithPriority(stream, flags, 0); }
ANSWER int cudaStreamCreate(void **stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
ANSWER int cuStreamCreate(void **stream, unsigned flags) { return cudaStreamCreateWithPriority(stream, flags, 0); }
ANSWER int cudaStreamDestroy(void *stream) {
  LOCKED { Stream *s = stream_of(stream); if (s) *s = streams[--stream_count]; }
  return OK;
}
ANSWER int cudaStreamGetPriority(void *stream, int *priority) { LOCKED { Stream *s = stream_of(stream); *priority = s ? s->priority : 0; } return OK; }
ANSWER int cudaStreamQuery(void *stream) { (void)stream; return OK; }
ANSWER int cudaStreamSynchronize(void *stream) { (void)stream; return OK; }
ANSWER int cuStreamSynchronize(void *stream) { (void)stream; return OK; }
ANSWER int cudaStreamAddCallback(void *stream, void (*call)(void *, int, void *), void *with, unsigned flags) { (void)flags; call(stream, OK, with); return OK; }
ANSWER int cudaLaunchHostFunc(void *stream, void (*call)(void *), void *with) { captured(stream); call(with); return OK; }

/* An event is the moment it was recorded, on a clock that work moves on: cuDNN's plans are chosen by the time they take. */
static _Atomic int64_t worked;
void work(int64_t nanoseconds) { worked += nanoseconds; }
typedef struct { double milliseconds; uint64_t captured_by; } Event; /* captured_by: the id of a capture, 0: none */
enum { EXTERNAL = 1 }; /* cudaEventRecordExternal, cudaEventWaitExternal: a node of the graph, which joins nothing */
ANSWER int cudaEventCreateWithFlags(void **event, unsigned flags) { (void)flags; return (*event = calloc(1, sizeof(Event))) ? OK : fail(OUT_OF_MEMORY); }
ANSWER int cudaEventCreate(void **event) { return cudaEventCreateWithFlags(event, 0); }
ANSWER int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  ((Event *)event)->milliseconds = now.tv_sec * 1e3 + (now.tv_nsec + worked) * 1e-6;
  LOCKED {
    Stream *s = stream_of(stream);
    ((Event *)event)->captured_by = s && s->capturing && flags != EXTERNAL ? s->id : 0;
    if (s && s->capturing && flags == EXTERNAL) s->graph->nodes++;
  }
  reduction_recorded(event, stream);
  return OK;
}
ANSWER int cudaEventRecord(void *event, void *stream) { return cudaEventRecordWithFlags(event, stream, 0); }
ANSWER int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) {
  LOCKED {
    Stream *s = stream_of(stream);
    if (s && s->capturing && flags == EXTERNAL) s->graph->nodes++;
    for (size_t i = 0; s && !s->capturing && ((Event *)event)->captured_by && i < stream_count; i++)
      if (streams[i].capturing && streams[i].id == ((Event *)event)->captured_by) {
        s->capturing = 1;
        s->id = streams[i].id;
        s->graph = streams[i].graph;
      }
  }
  return OK;
}
ANSWER int cudaEventQuery(void *event) { return reduction_is_seen(event) ? OK : fail(NOT_READY); }
ANSWER int cudaEventSynchronize(void *event) { (void)event; return OK; }
ANSWER int cudaEventDestroy(void *event) { reduction_forgotten(event); free(event); return OK; }
ANSWER int cudaEventElapsedTime(float *milliseconds, void *from, void *to) { *milliseconds = (float)(((Event *)to)->milliseconds - ((Event *)from)->milliseconds); return OK; }
ANSWER int cudaEventElapsedTime_v2(float *milliseconds, void *from, void *to) { return cudaEventElapsedTime(milliseconds, from, to); }

/* Capture (cuda_runtime_api.h). Status: 0 none, 1 active. */
static int capture_of(void *stream, int *status, unsigned long long *id, void **graph) {
  LOCKED {
    Stream *s = stream_of(stream);
    *status = s && s->capturing;
    if (id) *id = s ? s->id : 0;
    if (graph) *graph = *status ? s->graph : NULL;
  }
  return OK;
}
ANSWER int cudaStreamIsCapturing(void *stream, int *status) { return capture_of(stream, status, NULL, NULL); }
ANSWER int cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph, const void ***nodes, size_t *node_count) { /* CUDA 12 */
  if (nodes) *nodes = NULL;
  if (node_count) *node_count = 0;
  return capture_of(stream, status, id, graph);
}
ANSWER int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id, void **graph, const void ***nodes, const void **edges, size_t *node_count) { /* CUDA 13 */
  if (edges) *edges = NULL;
  return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, node_count);
}
ANSWER int cudaStreamBeginCapture(void *stream, int mode) {
  (void)mode;
  LOCKED {
    Stream *s = stream_of(stream);
    if (s) { s->capturing = 1; s->id = ++captures; s->graph = calloc(1, sizeof(Graph)); }
  }
  return OK;
}
ANSWER int cudaStreamEndCapture(void *stream, void **graph) {
  LOCKED {
    Stream *s = stream_of(stream);
    *graph = s ? s->graph : NULL;
    for (size_t i = 0; *graph && i < stream_count; i++)
      if (streams[i].graph == *graph) { streams[i].capturing = 0; streams[i].graph = NULL; }
  }
  return OK;
}
ANSWER int cudaThreadExchangeStreamCaptureMode(int *mode) { static _Thread_local int now; int before = now; now = *mode; *mode = before; return OK; }
ANSWER int cudaGraphGetNodes(void *graph, void **nodes, size_t *count) { (void)nodes; *count = ((Graph *)graph)->nodes; return OK; }
/* An instance holds memory of the driver's for what it launches (memory.c). */
ANSWER int cudaGraphInstantiate(void **exec, void *graph, unsigned long long flags) {
  (void)flags;
  Graph *instance = calloc(1, sizeof(Graph));
  if (!instance) return fail(OUT_OF_MEMORY);
  instance->nodes = ((Graph *)graph)->nodes;
  LOCKED process_graphs((int64_t)instance->nodes, 1);
  *exec = instance;
  return OK;
}
ANSWER int cudaGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) { return cudaGraphInstantiate(exec, graph, flags); }
/* An instance takes over the nodes of another graph where it has the same ones (cuda_runtime_api.h: cudaGraphExecUpdateResultInfo, whose first
   word is 0 for success, 3 for a changed topology); nothing of it is taken anew. */
ANSWER int cudaGraphExecUpdate(void *exec, void *graph, int *result) {
  int same = ((Graph *)exec)->nodes == ((Graph *)graph)->nodes;
  if (result) memset(result, 0, 32), result[0] = same ? 0 : 3;
  return same ? OK : fail(GRAPH_UPDATE_FAILURE);
}
ANSWER int cudaGraphLaunch(void *exec, void *stream) { (void)exec; (void)stream; return OK; }
ANSWER int cudaGraphDestroy(void *graph) { free(graph); return OK; }
ANSWER int cudaGraphExecDestroy(void *exec) {
  LOCKED process_graphs(-(int64_t)((Graph *)exec)->nodes, -1);
  free(exec);
  return OK;
}
ANSWER int cudaGraphRetainUserObject(void *graph, void *object, unsigned count, unsigned flags) { (void)graph; (void)object; (void)count; (void)flags; return OK; }
ANSWER int cudaUserObjectCreate(void **object, void *pointer, void (*destroy)(void *), unsigned count, unsigned flags) { (void)pointer; (void)destroy; (void)count; (void)flags; *object = new_handle(); return OK; }
ANSWER int cudaUserObjectRelease(void *object, unsigned count) { (void)object; (void)count; return OK; }
