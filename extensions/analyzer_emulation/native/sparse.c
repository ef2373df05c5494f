/* cuSPARSE's products of a sparse matrix with a dense one (cusparse.h): how large their buffers are, the analyzer tells
   (`analyzer/libraries/cusparse.py`). Those of blocks (bsrmm, bsrmv) have no buffer. Everything else of it is refused. */
#include "emulated.h"
#include "question.h"
#include <stdlib.h>

enum { UNSUPPORTED = 10 }; /* CUSPARSE_STATUS_NOT_SUPPORTED */
typedef struct { int64_t rows, columns, entries; } Matrix;

ANSWER int cusparseCreate(void **handle) { *handle = new_handle(); return OK; }
ANSWER int cusparseDestroy(void *handle) { (void)handle; return OK; }
ANSWER int cusparseSetStream(void *handle, void *stream) { (void)handle; (void)stream; return OK; }
ANSWER int cusparseSetPointerMode(void *handle, int mode) { (void)handle; (void)mode; return OK; }
ANSWER int cusparseXcoo2csr(void *handle) { (void)handle; return OK; }

static int made(Matrix **matrix, int64_t rows, int64_t columns, int64_t entries) {
  *matrix = malloc(sizeof **matrix);
  if (!*matrix) return 2; /* CUSPARSE_STATUS_ALLOC_FAILED */
  **matrix = (Matrix){rows, columns, entries};
  return OK;
}
ANSWER int cusparseCreateCsr(Matrix **matrix, int64_t rows, int64_t columns, int64_t entries) { return made(matrix, rows, columns, entries); }
ANSWER int cusparseCreateDnMat(Matrix **matrix, int64_t rows, int64_t columns) { return made(matrix, rows, columns, rows * columns); }
ANSWER int cusparseCreateDnVec(Matrix **matrix, int64_t size) { return made(matrix, size, 1, size); }
ANSWER int cusparseCreateMatDescr(Matrix **matrix) { return made(matrix, 0, 0, 0); }
ANSWER int cusparseDestroyMatDescr(Matrix *matrix) { free(matrix); return OK; }
#define NO_BUFFER(name) ANSWER int name(void *handle) { (void)handle; return OK; }
NO_BUFFER(cusparseSbsrmm) NO_BUFFER(cusparseDbsrmm) NO_BUFFER(cusparseCbsrmm) NO_BUFFER(cusparseZbsrmm)
NO_BUFFER(cusparseSbsrmv) NO_BUFFER(cusparseDbsrmv) NO_BUFFER(cusparseCbsrmv) NO_BUFFER(cusparseZbsrmv)
ANSWER int cusparseDestroySpMat(Matrix *matrix) { free(matrix); return OK; }
ANSWER int cusparseDestroyDnMat(Matrix *matrix) { free(matrix); return OK; }
ANSWER int cusparseDestroyDnVec(Matrix *matrix) { free(matrix); return OK; }

static int buffer(const char *what, const Matrix *matrix, int algorithm, size_t *bytes) {
  struct line line = {0};
  int64_t *told;
  line_add(&line, "{\"about\":\"cusparse.product\",\"what\":\"%s\",\"algorithm\":%d,\"rows\":%lld,\"entries\":%lld}", what, algorithm,
           (long long)matrix->rows, (long long)matrix->entries);
  int64_t count = question_ask(&line, &told);
  if (count == 1) *bytes = (size_t)told[0];
  free(told);
  return count == 1 ? OK : UNSUPPORTED;
}
ANSWER int cusparseSpMM_bufferSize(void *handle, int op, int other_op, const void *alpha, Matrix *matrix, Matrix *dense, const void *beta, Matrix *result,
                                   int type, int algorithm, size_t *bytes) {
  (void)handle; (void)op; (void)other_op; (void)alpha; (void)dense; (void)beta; (void)result; (void)type;
  return buffer("matrix", matrix, algorithm, bytes);
}
ANSWER int cusparseSpMM(void *handle) { (void)handle; return OK; }
ANSWER int cusparseSpMV_bufferSize(void *handle, int op, const void *alpha, Matrix *matrix, Matrix *vector, const void *beta, Matrix *result, int type,
                                   int algorithm, size_t *bytes) {
  (void)handle; (void)op; (void)alpha; (void)vector; (void)beta; (void)result; (void)type;
  return buffer("vector", matrix, algorithm, bytes);
}
ANSWER int cusparseSpMV(void *handle) { (void)handle; return OK; }
