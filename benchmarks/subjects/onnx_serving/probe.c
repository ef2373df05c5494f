/* A library of custom operators without operators: ONNX Runtime tells it where its interface lies (onnxruntime_c_api.h, OrtApiBase). */
#include <stddef.h>
static const void *api_base;
const void *serving_api_base(void) { return api_base; }
void *RegisterCustomOps(void *options, const void *base) { (void)options; api_base = base; return NULL; }
