/* Stands in for the CUDA driver (libcuda.so.1) and for NVIDIA's compiler (libnvrtc) in the process that asks cuDNN
   (asker.py), where neither is. Without both cuDNN leaves out the engines it compiles at run time; with both it lists them
   as it does on a GPU, for whatever GPU is described to it. It loads what it compiled, and launches nothing.

   Functions and their arguments: cuda.h and nvrtc.h of CUDA 13.0. What cuDNN looks up and does not call before it has
   listed its plans is refused. cuGetExportTable and cuGetProcAddress are refused, too: without them the CUDA runtime
   inside cuDNN does not start, and finds no GPU. */
#include <stddef.h>
#include <string.h>

#define ANSWER __attribute__((visibility("default")))
enum { OK = 0, NOT_FOUND = 500, NOT_SUPPORTED = 801, CODE_BYTES = 64 };
static char handle; /* every handle there is */

/* The driver. */
ANSWER int cuInit(unsigned flags) { (void)flags; return OK; }
ANSWER int cuDriverGetVersion(int *version) { *version = 13000; return OK; }
ANSWER int cuDeviceGetCount(int *count) { *count = 1; return OK; }
ANSWER int cuGetErrorString(int error, const char **text) { (void)error; *text = ""; return OK; }
ANSWER int cuLibraryLoadData(void **library) { *library = &handle; return OK; }
ANSWER int cuLibraryGetKernel(void **kernel) { *kernel = &handle; return OK; }
ANSWER int cuLibraryUnload(void *library) { (void)library; return OK; }
ANSWER int cuGetExportTable(const void **table, const void *id) { (void)id; *table = 0; return NOT_FOUND; }
ANSWER int cuGetProcAddress(const char *name, void **function) { (void)name; *function = 0; return NOT_FOUND; }
ANSWER int cuGetProcAddress_v2(const char *name, void **function) { return cuGetProcAddress(name, function); }
#define REFUSED(name) ANSWER int name(void) { return NOT_SUPPORTED; }
REFUSED(cuCtxGetCurrent) REFUSED(cuCtxGetLimit) REFUSED(cuCtxPopCurrent) REFUSED(cuCtxPushCurrent)
REFUSED(cuDeviceGet) REFUSED(cuGetErrorName) REFUSED(cuKernelGetAttribute) REFUSED(cuKernelGetFunction)
REFUSED(cuKernelSetAttribute) REFUSED(cuLaunchCooperativeKernel) REFUSED(cuLaunchKernel) REFUSED(cuLaunchKernelEx)
REFUSED(cuLibraryGetModule) REFUSED(cuLibraryLoadFromFile) REFUSED(cuLinkAddData) REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate) REFUSED(cuLinkDestroy) REFUSED(cuOccupancyMaxPotentialClusterSize) REFUSED(cuStreamGetCtx)

/* The compiler: every program compiles, at once, to a few bytes that nobody runs. */
static int size(size_t *bytes) { *bytes = CODE_BYTES; return OK; }
static int code(char *bytes) { memset(bytes, 0, CODE_BYTES); return OK; }
ANSWER int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return OK; }
ANSWER int nvrtcCreateProgram(void **program) { *program = &handle; return OK; }
ANSWER int nvrtcDestroyProgram(void **program) { *program = 0; return OK; }
ANSWER int nvrtcCompileProgram(void *program) { (void)program; return OK; }
ANSWER int __nvrtcCPEx(void) { return OK; } /* what nvrtc.h does not have: cuDNN looks it up, and compiles with it */
ANSWER int nvrtcGetCUBINSize(void *program, size_t *bytes) { (void)program; return size(bytes); }
ANSWER int nvrtcGetCUBIN(void *program, char *bytes) { (void)program; return code(bytes); }
ANSWER int nvrtcGetPTXSize(void *program, size_t *bytes) { (void)program; return size(bytes); }
ANSWER int nvrtcGetPTX(void *program, char *bytes) { (void)program; return code(bytes); }
ANSWER int nvrtcGetLTOIRSize(void *program, size_t *bytes) { (void)program; return size(bytes); }
ANSWER int nvrtcGetLTOIR(void *program, char *bytes) { (void)program; return code(bytes); }
ANSWER int nvrtcGetProgramLogSize(void *program, size_t *bytes) { (void)program; *bytes = 1; return OK; }
ANSWER int nvrtcGetProgramLog(void *program, char *text) { (void)program; *text = 0; return OK; }
ANSWER int nvrtcAddNameExpression(void *program, const char *name) { (void)program; (void)name; return OK; }
ANSWER int nvrtcGetLoweredName(void *program, const char *name, const char **lowered) {
  (void)program; *lowered = name;
  return OK;
}
ANSWER int nvrtcGetNumSupportedArchs(int *count) { *count = 1; return OK; }
ANSWER int nvrtcGetSupportedArchs(int *capabilities) { *capabilities = 75; return OK; }
ANSWER const char *nvrtcGetErrorString(int error) { (void)error; return ""; }
