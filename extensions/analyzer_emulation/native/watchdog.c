/* When NCCL's watchdog learns that a reduction is through.

   What DDP's reducer gives to NCCL in the backward pass nobody waits for: it stays on a shelf until another collective begins after
   PyTorch's watchdog thread, which looks every 100 ms, has seen its event done (TensorShelf, shelvesToUnstash_ and workEnqueue,
   ProcessGroupNCCL.cpp). How long a step takes beside a GPU no clock tells here, so the answer follows the rule of `analyze run`
   (`analyzer_programs/world/collectives.py`), by steps: the first one, which loads kernels, is longer than that, and its reductions are
   seen by the time a collective begins outside of it; those of any other when the next step's gradients are reduced.

   1. A reduction is what is called on a thread of autograd's; its event is the next one this thread records on its stream.
   2. The watchdog alone, known by its thread's name, is told that the event is not done yet; for everyone else it is.
   3. A collective by whose beginning it should have seen some waits until it has looked, so that every run is alike.
   4. A watchdog that no longer pauses between its looks is to end when it has seen all (terminateProcessGroup_): no step follows, and
      all is done. No event waits longer than MOST_MS.

   Threads' names: "pt_autograd_N" (torch/csrc/autograd/engine.cpp), "pt_nccl_watchdg" (ProcessGroupNCCL.cpp). */
#include "emulated.h"
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { MOST_MS = 60000, MOST_LOOK_MS = 1000, LOOKS = 16, LOOK_MS = 25, PENDING = 4096 };
typedef struct { const void *event; int step, due; int64_t since_ms, looks; } Reduction;
static Reduction pending[PENDING];
static size_t count;
static int steps;
static _Thread_local int reduces;
static _Thread_local const void *reduces_on;

static int is_thread(const char *name) {
  char own[17] = "";
  prctl(PR_GET_NAME, own);
  return !strncmp(own, name, strlen(name));
}
static int64_t clock_ms(void) { struct timespec now; clock_gettime(CLOCK_MONOTONIC, &now); return now.tv_sec * 1000ll + now.tv_nsec / 1000000; }
static void drop(size_t at) { pending[at] = pending[--count]; }
static size_t find(const void *event) { size_t at = 0; while (at < count && pending[at].event != event) at++; return at; }
static int is_seen(Reduction *one) {
  int64_t passed = clock_ms() - one->since_ms;
  return one->due || passed >= MOST_MS || ++one->looks > LOOKS + passed / LOOK_MS;
}

ANSWER void emulated_stepped(void) { LOCKED steps++; }

void collective_begins(const void *stream) {
  int in_backward = is_thread("pt_autograd");
  reduces = in_backward;
  reduces_on = stream;
  size_t waits = 0;
  LOCKED
    for (size_t i = 0; i < count; i++) {
      Reduction *one = &pending[i];
      if (one->step < steps && (in_backward || !one->step)) one->due = 1;
      waits += (size_t)one->due;
    }
  const struct timespec pause = {0, 2000000};
  for (int64_t until = clock_ms() + MOST_LOOK_MS; waits && clock_ms() < until;) {
    nanosleep(&pause, NULL);
    waits = 0;
    LOCKED for (size_t i = 0; i < count; i++) waits += (size_t)pending[i].due;
  }
}
void collectives_end(void) { LOCKED for (size_t i = 0; i < count; i++) pending[i].due = 1; }
void reduction_recorded(const void *event, const void *stream) {
  int is_one = reduces && reduces_on == stream;
  if (is_one) reduces = 0;
  LOCKED {
    size_t at = find(event);
    if (at < count) drop(at);
    if (is_one && count < PENDING) pending[count++] = (Reduction){event, steps, 0, clock_ms(), 0};
  }
}
int reduction_is_seen(const void *event) {
  if (!count || !is_thread("pt_nccl_watchdg")) return 1;
  int seen = 1;
  LOCKED {
    size_t at = find(event);
    if (at < count && (seen = is_seen(&pending[at]))) drop(at);
  }
  return seen;
}
void reduction_forgotten(const void *event) {
  if (!count) return;
  LOCKED { size_t at = find(event); if (at < count) drop(at); }
}
