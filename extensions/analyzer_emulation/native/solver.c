/* cuSOLVER's dense routines, as far as PyTorch calls them: factorisations compute nothing, and what a work area takes is asked of the analyzer
   (question.h; analyzer/libraries/cusolver.py). A question names the routine, its type (S, D, C, Z) and its numbers; the answer is a number
   of elements, or of the interface of 64 bits (names that begin with X) the bytes on the device and on the host.

   Signatures: cusolverDn.h of CUDA 13. What is called how: PyTorch, aten/src/ATen/native/cuda/linalg/CUDASolver.cpp. Results (`info`) are
   unknown memory, which reads 0: success. */
#include "emulated.h"
#include "question.h"
#include <stdlib.h>

enum { NOT_SUPPORTED_HERE = 9 }; /* CUSOLVER_STATUS_NOT_SUPPORTED */
typedef struct { void *stream; } Solver;

ANSWER int cusolverDnCreate(void **handle) {
  LOCKED process_library(LIBRARY_CUSOLVER);
  return (*handle = calloc(1, sizeof(Solver))) ? OK : 2;
}
ANSWER int cusolverDnDestroy(void *handle) { free(handle); return OK; }
ANSWER int cusolverDnSetStream(Solver *handle, void *stream) { handle->stream = stream; return OK; }
#define SETTINGS(name) \
  ANSWER int cusolverDnCreate##name(void **made) { *made = new_handle(); return OK; } \
  ANSWER int cusolverDnDestroy##name(void *made) { (void)made; return OK; }
SETTINGS(Params) SETTINGS(GesvdjInfo) SETTINGS(SyevjInfo)
ANSWER int cusolverDnXgesvdjSetTolerance(void *info, double tolerance) { (void)info; (void)tolerance; return OK; }
ANSWER int cusolverDnXgesvdjSetMaxSweeps(void *info, int sweeps) { (void)info; (void)sweeps; return OK; }
ANSWER int cusolverDnXgesvdjSetSortEig(void *info, int sorted) { (void)info; (void)sorted; return OK; }

/* Asks what a routine's work area takes: `wanted` sizes. */
static int ask(const char *routine, char type, int count, const int64_t *numbers, int wanted, int64_t *sizes) {
  struct line line = {0};
  int64_t *told = NULL;
  line_add(&line, "{\"about\":\"cusolver\",\"routine\":\"%s\",\"type\":\"%c\"", routine, type);
  line_add_numbers(&line, "numbers", count, numbers);
  line_add(&line, "}");
  int answered = question_ask(&line, &told) == wanted;
  for (int i = 0; answered && i < wanted; i++) sizes[i] = told[i];
  free(told);
  return answered ? OK : NOT_SUPPORTED_HERE;
}

#define NUMBERS(...) sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__}
static int elements(const char *routine, char type, int *size, int count, const int64_t *numbers) {
  int64_t told = 0;
  int status = ask(routine, type, count, numbers, 1, &told);
  *size = (int)told;
  return status;
}
static int bytes(const char *routine, int type, size_t *device, size_t *host, int count, const int64_t *numbers) {
  int64_t told[2] = {0};
  int status = ask(routine, type == 0 ? 'S' : type == 1 ? 'D' : type == 4 ? 'C' : 'Z', count, numbers, 2, told); /* cudaDataType */
  *device = (size_t)told[0];
  *host = (size_t)told[1];
  return status;
}

#define COMPUTES(name) ANSWER int name(Solver *handle) { captured(handle->stream); return OK; }
typedef const void *At;
typedef long long Long;
/* `type`: S, D, C or Z; or, un, he: how the routine is called for real and for complex numbers. */
#define OF_TYPE(type, or, sy)                                                                                                          \
  ANSWER int cusolverDn##type##potrf_bufferSize(Solver *h, int upper, int n, At a, int lda, int *size) {                               \
    (void)h; (void)a; (void)lda; return elements("potrf", *#type, size, NUMBERS(upper, n)); }                                          \
  ANSWER int cusolverDn##type##getrf_bufferSize(Solver *h, int m, int n, At a, int lda, int *size) {                                   \
    (void)h; (void)a; (void)lda; return elements("getrf", *#type, size, NUMBERS(m, n)); }                                              \
  ANSWER int cusolverDn##type##geqrf_bufferSize(Solver *h, int m, int n, At a, int lda, int *size) {                                   \
    (void)h; (void)a; (void)lda; return elements("geqrf", *#type, size, NUMBERS(m, n)); }                                              \
  ANSWER int cusolverDn##type##or##gqr_bufferSize(Solver *h, int m, int n, int k, At a, int lda, At tau, int *size) {                  \
    (void)h; (void)a; (void)lda; (void)tau; return elements("orgqr", *#type, size, NUMBERS(m, n, k)); }                                \
  ANSWER int cusolverDn##type##or##mqr_bufferSize(Solver *h, int side, int turned, int m, int n, int k, At a, int lda, At tau, At c, int ldc, \
                                                  int *size) {                                                                         \
    (void)h; (void)turned; (void)a; (void)lda; (void)tau; (void)c; (void)ldc;                                                          \
    return elements("ormqr", *#type, size, NUMBERS(side == 0, m, n, k)); }                                                             \
  ANSWER int cusolverDn##type##sytrf_bufferSize(Solver *h, int n, At a, int lda, int *size) {                                          \
    (void)h; (void)a; (void)lda; return elements("sytrf", *#type, size, NUMBERS(n)); }                                                 \
  ANSWER int cusolverDn##type##gesvd_bufferSize(Solver *h, int m, int n, int *size) {                                                  \
    (void)h; return elements("gesvd", *#type, size, NUMBERS(m, n)); }                                                                  \
  ANSWER int cusolverDn##type##gesvdj_bufferSize(Solver *h, int vectors, int reduced, int m, int n, At a, int lda, At s, At u, int ldu, At v, \
                                                 int ldv, int *size, At params) {                                                      \
    (void)h; (void)a; (void)lda; (void)s; (void)u; (void)ldu; (void)v; (void)ldv; (void)params;                                        \
    return elements("gesvdj", *#type, size, NUMBERS(vectors, reduced, m, n)); }                                                        \
  ANSWER int cusolverDn##type##gesvdjBatched_bufferSize(Solver *h, int vectors, int m, int n, At a, int lda, At s, At u, int ldu, At v, int ldv, \
                                                        int *size, At params, int batch) {                                             \
    (void)h; (void)a; (void)lda; (void)s; (void)u; (void)ldu; (void)v; (void)ldv; (void)params;                                        \
    return elements("gesvdjBatched", *#type, size, NUMBERS(vectors, m, n, batch)); }                                                   \
  ANSWER int cusolverDn##type##gesvdaStridedBatched_bufferSize(Solver *h, int vectors, int rank, int m, int n, At a, int lda, Long by_a, At s, \
                                                               Long by_s, At u, int ldu, Long by_u, At v, int ldv, Long by_v, int *size, \
                                                               int batch) {                                                            \
    (void)h; (void)rank; (void)a; (void)lda; (void)by_a; (void)s; (void)by_s; (void)u; (void)ldu; (void)by_u; (void)v; (void)ldv;      \
    (void)by_v; return elements("gesvdaStridedBatched", *#type, size, NUMBERS(vectors, m, n, batch)); }                                \
  ANSWER int cusolverDn##type##sy##evd_bufferSize(Solver *h, int vectors, int upper, int n, At a, int lda, At w, int *size) {          \
    (void)h; (void)a; (void)lda; (void)w; return elements("syevd", *#type, size, NUMBERS(vectors, upper, n)); }                        \
  ANSWER int cusolverDn##type##sy##evj_bufferSize(Solver *h, int vectors, int upper, int n, At a, int lda, At w, int *size, At params) { \
    (void)h; (void)a; (void)lda; (void)w; (void)params; return elements("syevj", *#type, size, NUMBERS(vectors, upper, n)); }          \
  ANSWER int cusolverDn##type##sy##evjBatched_bufferSize(Solver *h, int vectors, int upper, int n, At a, int lda, At w, int *size, At params, \
                                                         int batch) {                                                                  \
    (void)h; (void)a; (void)lda; (void)w; (void)params; return elements("syevjBatched", *#type, size, NUMBERS(vectors, upper, n, batch)); } \
  COMPUTES(cusolverDn##type##potrf) COMPUTES(cusolverDn##type##potrs) COMPUTES(cusolverDn##type##potrfBatched)                         \
  COMPUTES(cusolverDn##type##potrsBatched) COMPUTES(cusolverDn##type##getrf) COMPUTES(cusolverDn##type##getrs)                         \
  COMPUTES(cusolverDn##type##geqrf) COMPUTES(cusolverDn##type##or##gqr) COMPUTES(cusolverDn##type##or##mqr)                            \
  COMPUTES(cusolverDn##type##sytrf) COMPUTES(cusolverDn##type##gesvd) COMPUTES(cusolverDn##type##gesvdj)                               \
  COMPUTES(cusolverDn##type##gesvdjBatched) COMPUTES(cusolverDn##type##gesvdaStridedBatched) COMPUTES(cusolverDn##type##sy##evd)       \
  COMPUTES(cusolverDn##type##sy##evj) COMPUTES(cusolverDn##type##sy##evjBatched)
OF_TYPE(S, or, sy) OF_TYPE(D, or, sy) OF_TYPE(C, un, he) OF_TYPE(Z, un, he)

ANSWER int cusolverDnXpotrf_bufferSize(Solver *h, At params, int upper, int64_t n, int type, At a, int64_t lda, int computed, size_t *device,
                                       size_t *host) {
  (void)h; (void)params; (void)a; (void)lda; (void)computed;
  return bytes("Xpotrf", type, device, host, NUMBERS(upper, n));
}
ANSWER int cusolverDnXgeqrf_bufferSize(Solver *h, At params, int64_t m, int64_t n, int type, At a, int64_t lda, int tau_type, At tau, int computed,
                                       size_t *device, size_t *host) {
  (void)h; (void)params; (void)a; (void)lda; (void)tau_type; (void)tau; (void)computed;
  return bytes("Xgeqrf", type, device, host, NUMBERS(m, n));
}
ANSWER int cusolverDnXsytrs_bufferSize(Solver *h, int upper, int64_t n, int64_t right, int type, At a, int64_t lda, At pivots, int b_type, At b,
                                       int64_t ldb, size_t *device, size_t *host) {
  (void)h; (void)a; (void)lda; (void)pivots; (void)b_type; (void)b; (void)ldb;
  return bytes("Xsytrs", type, device, host, NUMBERS(upper, n, right));
}
ANSWER int cusolverDnXsyevd_bufferSize(Solver *h, At params, int vectors, int upper, int64_t n, int type, At a, int64_t lda, int w_type, At w,
                                       int computed, size_t *device, size_t *host) {
  (void)h; (void)params; (void)a; (void)lda; (void)w_type; (void)w; (void)computed;
  return bytes("Xsyevd", type, device, host, NUMBERS(vectors, upper, n));
}
ANSWER int cusolverDnXsyevBatched_bufferSize(Solver *h, At params, int vectors, int upper, int64_t n, int type, At a, int64_t lda, int w_type, At w,
                                             int computed, size_t *device, size_t *host, int64_t batch) {
  (void)h; (void)params; (void)a; (void)lda; (void)w_type; (void)w; (void)computed;
  return bytes("XsyevBatched", type, device, host, NUMBERS(vectors, upper, n, batch));
}
ANSWER int cusolverDnXgeev_bufferSize(Solver *h, At params, int left, int right, int64_t n, int type, At a, int64_t lda, int w_type, At w, int l_type,
                                      At l, int64_t ldl, int r_type, At r, int64_t ldr, int computed, size_t *device, size_t *host) {
  (void)h; (void)params; (void)left; (void)a; (void)lda; (void)w_type; (void)w; (void)l_type; (void)l; (void)ldl; (void)r_type; (void)r;
  (void)ldr; (void)computed;
  return bytes("Xgeev", type, device, host, NUMBERS(right, n));
}
COMPUTES(cusolverDnXpotrf) COMPUTES(cusolverDnXpotrs) COMPUTES(cusolverDnXgeqrf) COMPUTES(cusolverDnXsytrs) COMPUTES(cusolverDnXsyevd)
COMPUTES(cusolverDnXsyevBatched) COMPUTES(cusolverDnXgeev)
