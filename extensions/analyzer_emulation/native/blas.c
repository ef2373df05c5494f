/* cuBLAS and cuBLASLt: handles and descriptions; products compute nothing. PyTorch takes their workspaces itself, through its
   allocator (aten/src/ATen/cuda/CublasHandlePool.cpp), so nothing of them is asked here. cublas_api.h, cublasLt.h. */
#include "emulated.h"
#include <stdlib.h>
#include <string.h>

typedef struct { int math, pointers; void *stream; } Handle;
ANSWER int cublasCreate_v2(void **handle) {
  LOCKED process_cublas();
  return (*handle = calloc(1, sizeof(Handle))) ? OK : 3;
}
ANSWER const char *cublasGetStatusName(int status) { return status ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_SUCCESS"; }
ANSWER const char *cublasGetStatusString(int status) { return status ? "the functionality is not emulated" : "success"; }
ANSWER int cublasDestroy_v2(void *handle) {
  LOCKED process_cublas_gone();
  free(handle);
  return OK;
}
ANSWER int cublasSetStream_v2(Handle *handle, void *stream) { handle->stream = stream; return OK; }
ANSWER int cublasGetStream_v2(Handle *handle, void **stream) { *stream = handle->stream; return OK; }
ANSWER int cublasSetWorkspace_v2(Handle *handle, void *workspace, size_t bytes) { (void)handle; (void)workspace; (void)bytes; return OK; }
ANSWER int cublasSetMathMode(Handle *handle, int mode) { handle->math = mode; return OK; }
ANSWER int cublasGetMathMode(Handle *handle, int *mode) { *mode = handle->math; return OK; }
ANSWER int cublasSetPointerMode_v2(Handle *handle, int mode) { handle->pointers = mode; return OK; }
ANSWER int cublasGetPointerMode_v2(Handle *handle, int *mode) { *mode = handle->pointers; return OK; }
ANSWER int cublasSetSmCountTarget(Handle *handle, int count) { (void)handle; (void)count; return OK; }

/* Functions that only compute, with the stream of their handle. */
#define COMPUTES(name) ANSWER int name(Handle *handle) { captured(handle->stream); return OK; }
#define FOUR(name) COMPUTES(cublasS##name) COMPUTES(cublasD##name) COMPUTES(cublasC##name) COMPUTES(cublasZ##name)
FOUR(gemm_v2) FOUR(gemmBatched) FOUR(gemmStridedBatched) FOUR(gemv_v2) FOUR(trsm_v2) FOUR(trsmBatched) FOUR(getrfBatched)
/* These tell the host whether their arguments were fit. */
typedef const void *At;
#define TELLS(type)                                                                                                                    \
  ANSWER int cublas##type##geqrfBatched(Handle *handle, int m, int n, At a, int lda, At tau, int *info, int batch) {                   \
    (void)m; (void)n; (void)a; (void)lda; (void)tau; (void)batch; captured(handle->stream); *info = 0; return OK; }                    \
  ANSWER int cublas##type##getrsBatched(Handle *handle, int turned, int n, int right, At a, int lda, At pivots, At b, int ldb, int *info, \
                                        int batch) {                                                                                   \
    (void)turned; (void)n; (void)right; (void)a; (void)lda; (void)pivots; (void)b; (void)ldb; (void)batch;                             \
    captured(handle->stream); *info = 0; return OK; }                                                                                  \
  ANSWER int cublas##type##gelsBatched(Handle *handle, int turned, int m, int n, int right, At a, int lda, At c, int ldc, int *info,   \
                                       int *infos, int batch) {                                                                        \
    (void)turned; (void)m; (void)n; (void)right; (void)a; (void)lda; (void)c; (void)ldc; (void)infos; (void)batch;                     \
    captured(handle->stream); *info = 0; return OK; }
TELLS(S) TELLS(D) TELLS(C) TELLS(Z)
#define INVERTS(type)                                                                                                                  \
  ANSWER int cublas##type##getriBatched(Handle *handle, int n, At a, int lda, const int *pivots, void *c, int ldc, int *info, int batch) { \
    (void)n; (void)a; (void)lda; (void)pivots; (void)c; (void)ldc; (void)info; (void)batch; captured(handle->stream); return OK; }
INVERTS(S) INVERTS(D)
COMPUTES(cublasSgeam) COMPUTES(cublasDgeam)
COMPUTES(cublasSgemmEx) COMPUTES(cublasGemmEx) COMPUTES(cublasGemmStridedBatchedEx) COMPUTES(cublasGemmBatchedEx) COMPUTES(cublasDotEx)
COMPUTES(cublasSdot_v2) COMPUTES(cublasDdot_v2) COMPUTES(cublasCdotu_v2) COMPUTES(cublasZdotu_v2) COMPUTES(cublasCdotc_v2) COMPUTES(cublasZdotc_v2)

ANSWER int cublasLtCreate(void **handle) { *handle = new_handle(); return OK; }
ANSWER int cublasLtDestroy(void *handle) { (void)handle; return OK; }
ANSWER int cublasLtMatmulDescCreate(void **made) { *made = new_handle(); return OK; }
ANSWER int cublasLtMatmulDescDestroy(void *made) { (void)made; return OK; }
ANSWER int cublasLtMatmulDescSetAttribute(void *made) { (void)made; return OK; }
ANSWER int cublasLtMatrixLayoutCreate(void **made) { *made = new_handle(); return OK; }
ANSWER int cublasLtMatrixLayoutDestroy(void *made) { (void)made; return OK; }
ANSWER int cublasLtMatrixLayoutSetAttribute(void *made) { (void)made; return OK; }
ANSWER int cublasLtMatrixTransformDescCreate(void **made) { *made = new_handle(); return OK; }
ANSWER int cublasLtMatrixTransformDescDestroy(void *made) { (void)made; return OK; }
ANSWER int cublasLtMatrixTransformDescSetAttribute(void *made) { (void)made; return OK; }
ANSWER int cublasLtMatrixTransform(void *handle) { (void)handle; return OK; }
ANSWER int cublasLtMatmulPreferenceCreate(void **made) { *made = new_handle(); return OK; }
ANSWER int cublasLtMatmulPreferenceDestroy(void *made) { (void)made; return OK; }
ANSWER int cublasLtMatmulPreferenceSetAttribute(void *made) { (void)made; return OK; }
ANSWER int cublasLtMatmul(void *handle) { (void)handle; LOCKED process_launches(1); return OK; }
/* cublasLtMatmulHeuristicResult_t: an algorithm of 64 bytes, the workspace it needs, a status, waves, four reserved words. */
typedef struct { uint64_t algorithm[8]; size_t workspace; int status; float waves; int reserved[4]; } Heuristic;
ANSWER int cublasLtMatmulAlgoGetHeuristic(void *handle, void *op, void *a, void *b, void *c, void *d, void *preference, int asked, Heuristic *found, int *count) {
  (void)handle; (void)op; (void)a; (void)b; (void)c; (void)d; (void)preference;
  if (asked < 1) return 7;
  memset(found, 0, sizeof *found);
  found->waves = 1;
  *count = 1;
  return OK;
}
