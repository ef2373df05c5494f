/* cuFFT, as PyTorch's plan cache calls it (cufftXt.h; aten/src/ATen/native/cuda/CuFFTPlanCache.h): how large a plan's workspace is, the
   analyzer tells (`analyzer/libraries/cufft.py`); the caller allocates it. Transforms compute nothing. */
#include "emulated.h"
#include "question.h"
#include <stdlib.h>

enum { NOT_OK = 5, UNSUPPORTED = 16 }; /* cufftResult: CUFFT_INTERNAL_ERROR, CUFFT_NOT_SUPPORTED */
enum { PLANS = 65536 };
static void *plan_streams[PLANS];
static _Atomic int plans;

ANSWER int cufftCreate(int *plan) {
  LOCKED process_library(LIBRARY_CUFFT);
  *plan = ++plans;
  return OK;
}
ANSWER int cufftDestroy(int plan) { (void)plan; return OK; }
ANSWER int cufftSetAutoAllocation(int plan, int on) { (void)plan; return on ? UNSUPPORTED : OK; }
ANSWER int cufftSetStream(int plan, void *stream) { plan_streams[plan % PLANS] = stream; return OK; }
ANSWER int cufftSetWorkArea(int plan, void *area) { (void)plan; (void)area; return OK; }
ANSWER int cufftXtExec(int plan, void *from, void *to, int direction) {
  (void)from; (void)to; (void)direction;
  captured(plan_streams[plan % PLANS]);
  return OK;
}
/* onembed: how long each dimension is where the results lie, the outermost without meaning; NULL where they lie densely. */
ANSWER int cufftXtMakePlanMany(int plan, int rank, long long *n, long long *inembed, long long istride, long long idist, int itype, long long *onembed,
                               long long ostride, long long odist, int otype, long long batch, size_t *bytes, int type) {
  (void)plan; (void)inembed; (void)idist; (void)ostride; (void)type;
  struct line line = {0};
  int64_t lengths[3], *told;
  if (rank < 1 || rank > 3) return UNSUPPORTED;
  for (int i = 0; i < rank; i++) lengths[i] = n[i];
  line_add(&line, "{\"about\":\"cufft.plan\",\"from\":%d,\"to\":%d,\"batch\":%lld,\"stride\":%lld,\"row\":%lld", itype, otype, batch, istride,
           !onembed ? 0 : rank > 1 ? onembed[rank - 1] : odist);
  line_add_numbers(&line, "lengths", rank, lengths);
  line_add(&line, "}");
  int64_t count = question_ask(&line, &told);
  if (count == 1) *bytes = (size_t)told[0];
  free(told);
  return count == 1 ? OK : count < 0 ? UNSUPPORTED : NOT_OK;
}
