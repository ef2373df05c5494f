/* cuDNN's documented interface, as far as PyTorch calls it: descriptors are kept, kernels do nothing, and what only the library
   knows (which plans there are for a graph of operations, their workspaces, the sizes of a recurrent layer) is asked of the
   analyzer (question.h), which answers from what was measured.

   1. Graph interface. A descriptor is a kind and its attributes, as the program set them. A graph of operations is written down
      whole and sent; recognising it is the other side's work (extensions/analyzer_emulation/cudnn.py). The answer is the list of plans in
      cuDNN's order: workspace, numerical notes, and the time one run takes.
   2. Descriptors are counted: cuDNN copies what an attribute refers to, so a program may destroy it at once.
   3. Benchmark mode times plans with events. A run of a plan therefore takes its time on the emulated device's clock.
   4. What PyTorch calls and is not answered names itself on the standard error and returns CUDNN_STATUS_NOT_SUPPORTED.

   Enumerators, types and signatures: NVIDIA cuDNN backend API reference, and the headers of the wheel nvidia-cudnn-cu13 9.19
   (cudnn_graph.h, cudnn_ops.h, cudnn_cnn.h, cudnn_adv.h), which are the same in all of cuDNN 9. What is called how: PyTorch,
   aten/src/ATen/native/cudnn, aten/src/ATen/cudnn/Descriptors.h; cudnn_frontend's headers. */
#include "emulated.h"
#include "question.h"

#include <stdlib.h>
#include <string.h>

/* cudnnStatus_t. */
enum { SUCCESS = 0, BAD_PARAM = 2000, NOT_FINALIZED = 2004, NO_PLAN = 3000, INTERNAL_ERROR = 4000 };

/* ---- the graph interface ---------------------------------------------------------------------------------------------- */

enum { ENGINE = 2, ENGINE_CONFIG = 3, HEURISTICS = 4, EXECUTION_PLAN = 5, OPERATION_GRAPH = 15, LAST_KIND = 63 };
enum { HEURISTICS_MODE = 200, HEURISTICS_GRAPH = 201, HEURISTICS_RESULTS = 202 };
enum { CONFIG_ENGINE = 300, CONFIG_KNOBS = 302, CONFIG_WORKSPACE = 303, CONFIG_SHARED_MEMORY = 304 };
enum { PLAN_CONFIG = 401, PLAN_WORKSPACE = 402, GRAPH_OPERATIONS = 801, GRAPH_ENGINE_COUNT = 802 };
enum { ENGINE_INDEX = 1301, ENGINE_KNOBS = 1302, ENGINE_NUMERICAL_NOTES = 1303, ENGINE_BEHAVIOR_NOTES = 1305 };
enum { TYPE_HANDLE = 0, TYPE_FLOAT = 4, TYPE_DOUBLE = 5, TYPE_VOID_PTR = 6, TYPE_DESCRIPTOR = 15, TYPE_FRACTION = 26 };
enum { TYPES = 64 };
/* Bytes of an element, by cudnnBackendAttributeType_t; enumerators are ints, as all are that came after 9.19. */
static const uint8_t ELEMENT_BYTES[TYPES] = {8, 4, 1, 8, 4, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 8,
                                        4, 4, 4, 4, 4, 4, 4, 4, 1, 4, 16, 4, 4, 4, 4, [31 ... TYPES - 1] = 4};

struct handle {
  void *stream;
};

struct plan {
  int64_t workspace, notes, nanoseconds, local, index;
};

struct attribute {
  struct attribute *next;
  int name, type;
  int64_t count;
  void *elements;
};

/* `plan`: of an engine, its configuration and their execution plan. `plans`: of heuristics. */
struct descriptor {
  int kind, finalized, references;
  struct attribute *attributes;
  struct plan plan, *plans;
  int64_t plan_count;
};

static void release(struct descriptor *descriptor);

static void forget(struct attribute *attribute) {
  if (attribute->type == TYPE_DESCRIPTOR)
    for (int64_t i = 0; i < attribute->count; i++) release(((struct descriptor **)attribute->elements)[i]);
  free(attribute->elements);
}

static void release(struct descriptor *descriptor) {
  if (descriptor == NULL || __atomic_sub_fetch(&descriptor->references, 1, __ATOMIC_ACQ_REL) > 0) return;
  for (struct attribute *attribute = descriptor->attributes, *next; attribute; attribute = next) {
    next = attribute->next;
    forget(attribute);
    free(attribute);
  }
  free(descriptor->plans);
  free(descriptor);
}

static struct attribute *attribute_of(const struct descriptor *descriptor, int name) {
  struct attribute *found = descriptor->attributes;
  while (found && found->name != name) found = found->next;
  return found;
}

static struct descriptor *referred(const struct descriptor *descriptor, int name) {
  struct attribute *found = attribute_of(descriptor, name);
  return found && found->type == TYPE_DESCRIPTOR && found->count == 1 ? *(struct descriptor **)found->elements : NULL;
}

ANSWER int cudnnBackendCreateDescriptor(int kind, void **made) {
  if (kind < 0 || kind > LAST_KIND || made == NULL) return BAD_PARAM;
  struct descriptor *descriptor = calloc(1, sizeof *descriptor);
  if (descriptor == NULL) return INTERNAL_ERROR;
  descriptor->kind = kind;
  descriptor->references = 1;
  *made = descriptor;
  return SUCCESS;
}

ANSWER int cudnnBackendDestroyDescriptor(void *descriptor) {
  release(descriptor);
  return SUCCESS;
}

ANSWER int cudnnBackendSetAttribute(void *to, int name, int type, int64_t count, const void *elements) {
  struct descriptor *descriptor = to;
  if (descriptor == NULL || type < 0 || type >= TYPES || count < 0 || (count && elements == NULL)) return BAD_PARAM;
  void *kept = malloc(count * ELEMENT_BYTES[type] + 1);
  if (kept == NULL) return INTERNAL_ERROR;
  memcpy(kept, elements, count * ELEMENT_BYTES[type]);
  if (type == TYPE_DESCRIPTOR)
    for (int64_t i = 0; i < count; i++) {
      struct descriptor *other = ((struct descriptor **)kept)[i];
      if (other) __atomic_add_fetch(&other->references, 1, __ATOMIC_RELAXED);
    }
  struct attribute *attribute = attribute_of(descriptor, name);
  if (attribute) {
    forget(attribute);
  } else {
    attribute = calloc(1, sizeof *attribute);
    attribute->next = descriptor->attributes;
    descriptor->attributes = attribute;
  }
  attribute->name = name;
  attribute->type = type;
  attribute->count = count;
  attribute->elements = kept;
  return SUCCESS;
}

/* {"kind": n, "name of an attribute": [elements], ...}; what another process cannot use (handles, addresses) is left out. */
static void write_descriptor(struct line *line, const struct descriptor *descriptor) {
  line_add(line, "{\"kind\":%d", descriptor->kind);
  for (struct attribute *attribute = descriptor->attributes; attribute; attribute = attribute->next) {
    if (attribute->type == TYPE_HANDLE || attribute->type == TYPE_VOID_PTR || attribute->type == TYPE_FRACTION) continue;
    line_add(line, ",\"%d\":[", attribute->name);
    for (int64_t i = 0; i < attribute->count; i++) {
      const void *element = (const char *)attribute->elements + i * ELEMENT_BYTES[attribute->type];
      if (i) line_add(line, ",");
      if (attribute->type == TYPE_DESCRIPTOR) {
        const struct descriptor *other = *(struct descriptor *const *)element;
        if (other)
          write_descriptor(line, other);
        else
          line_add(line, "null");
      } else if (attribute->type == TYPE_FLOAT || attribute->type == TYPE_DOUBLE) {
        double value = attribute->type == TYPE_FLOAT ? *(const float *)element : *(const double *)element;
        if (value - value == 0)
          line_add(line, "%.9g", value);
        else
          line_add(line, "null"); /* infinities, of which JSON knows nothing */
      } else {
        int64_t value = ELEMENT_BYTES[attribute->type] == 8   ? *(const int64_t *)element
                        : ELEMENT_BYTES[attribute->type] == 4 ? *(const int32_t *)element
                                                              : *(const int8_t *)element;
        line_add(line, "%lld", (long long)value);
      }
    }
    line_add(line, "]");
  }
  line_add(line, "}");
}

/* The plans there are for the graph, in the order of cuDNN's heuristics: four numbers each. */
static int ask_for_plans(struct descriptor *heuristics) {
  struct descriptor *graph = referred(heuristics, HEURISTICS_GRAPH);
  struct attribute *mode = attribute_of(heuristics, HEURISTICS_MODE);
  if (graph == NULL || mode == NULL) return BAD_PARAM;
  struct line line = {0};
  int64_t *numbers;
  line_add(&line, "{\"about\":\"cudnn.plans\",\"mode\":%d,", *(int *)mode->elements);
  if (convolution_search()) {
    line_add(&line, "\"search\":\"%s\",", convolution_search());
    if (!strcmp(convolution_search(), "EXHAUSTIVE")) LOCKED process_search();
  }
  line_add(&line, "\"graph\":");
  write_descriptor(&line, graph);
  line_add(&line, "}");
  int64_t count = question_ask(&line, &numbers);
  if (count < 0) return NO_PLAN;
  heuristics->plan_count = count / 4;
  heuristics->plans = calloc(heuristics->plan_count + 1, sizeof *heuristics->plans);
  for (int64_t i = 0; i < heuristics->plan_count; i++)
    heuristics->plans[i] = (struct plan){numbers[4 * i], numbers[4 * i + 1], numbers[4 * i + 2], numbers[4 * i + 3], i};
  free(numbers);
  return SUCCESS;
}

ANSWER int cudnnBackendFinalize(void *of) {
  struct descriptor *descriptor = of;
  if (descriptor == NULL) return BAD_PARAM;
  int status = SUCCESS;
  if (descriptor->kind == HEURISTICS) {
    status = ask_for_plans(descriptor);
  } else if (descriptor->kind == EXECUTION_PLAN) {
    struct descriptor *config = referred(descriptor, PLAN_CONFIG);
    /* A configuration that the program put together itself (an engine by its number, knobs) is nobody's plan. */
    if (config == NULL || !config->finalized) return NO_PLAN;
    descriptor->plan = config->plan;
  } else if (descriptor->kind == ENGINE || descriptor->kind == ENGINE_CONFIG) {
    return NO_PLAN;
  }
  descriptor->finalized = status == SUCCESS;
  return status;
}

/* Hands over `count` numbers of a type, as many as were asked for; *told: how many there are. */
static int give(const int64_t *numbers, int64_t count, int type, int64_t requested, int64_t *told, void *elements) {
  if (told) *told = count;
  for (int64_t i = 0; elements && i < count && i < requested; i++) {
    if (ELEMENT_BYTES[type] == 8)
      ((int64_t *)elements)[i] = numbers[i];
    else
      ((int32_t *)elements)[i] = (int32_t)numbers[i];
  }
  return SUCCESS;
}

/* Fills descriptors the program made: the results of heuristics, the engine of a configuration. */
static int fill(const struct plan *plans, int64_t count, int64_t requested, int64_t *told, void *elements) {
  int64_t given = elements && requested < count ? requested : count;
  if (told) *told = given;
  for (int64_t i = 0; elements && i < given && i < requested; i++) {
    struct descriptor *descriptor = ((struct descriptor **)elements)[i];
    if (descriptor == NULL) return BAD_PARAM;
    descriptor->plan = plans[i];
    descriptor->finalized = 1;
  }
  return SUCCESS;
}

ANSWER int cudnnBackendGetAttribute(void *from, int name, int type, int64_t requested, int64_t *told, void *elements) {
  struct descriptor *descriptor = from;
  if (descriptor == NULL || type < 0 || type >= TYPES) return BAD_PARAM;
  int64_t notes[64], count = 0;
  switch (name) {
    case HEURISTICS_RESULTS:
      if (!descriptor->finalized) return NOT_FINALIZED;
      return fill(descriptor->plans, descriptor->plan_count, requested, told, elements);
    case CONFIG_ENGINE:
      return descriptor->finalized ? fill(&descriptor->plan, 1, requested, told, elements) : NOT_FINALIZED;
    case PLAN_CONFIG:
      return fill(&descriptor->plan, 1, requested, told, elements);
    case CONFIG_WORKSPACE:
    case PLAN_WORKSPACE:
      return descriptor->finalized ? give(&descriptor->plan.workspace, 1, type, requested, told, elements) : NOT_FINALIZED;
    case CONFIG_SHARED_MEMORY: /* who asks leaves engines out that want more than there is: these do not */
      return give(&(int64_t){0}, 1, type, requested, told, elements);
    case ENGINE_INDEX:
      return give(&descriptor->plan.index, 1, type, requested, told, elements);
    case ENGINE_NUMERICAL_NOTES:
      for (int bit = 0; bit < 64; bit++)
        if (descriptor->plan.notes >> bit & 1) notes[count++] = bit;
      return give(notes, count, type, requested, told, elements);
    case CONFIG_KNOBS:
    case ENGINE_KNOBS:
    case ENGINE_BEHAVIOR_NOTES:
      return give(NULL, 0, type, requested, told, elements);
    case GRAPH_ENGINE_COUNT:
      return give(&(int64_t){1}, 1, type, requested, told, elements);
  }
  struct attribute *attribute = attribute_of(descriptor, name);
  if (attribute == NULL || attribute->type != type) return NO_PLAN;
  if (told) *told = attribute->count;
  if (elements)
    memcpy(elements, attribute->elements, (requested < attribute->count ? requested : attribute->count) * ELEMENT_BYTES[type]);
  return SUCCESS;
}

ANSWER int cudnnBackendExecute(void *handle, void *plan, void *variant_pack) {
  struct descriptor *descriptor = plan;
  (void)variant_pack;
  if (descriptor == NULL || !descriptor->finalized) return NOT_FINALIZED;
  if (descriptor->plan.local) LOCKED process_local((uint64_t)descriptor->plan.local);
  work(descriptor->plan.nanoseconds);
  if (handle) captured(((struct handle *)handle)->stream);
  return SUCCESS;
}

#define EXECUTE_IN_GRAPH(name)                                                      \
  ANSWER int name(void *handle, void *plan, void *variant_pack, void *graph) {      \
    (void)graph;                                                                    \
    return cudnnBackendExecute(handle, plan, variant_pack);                         \
  }
EXECUTE_IN_GRAPH(cudnnBackendPopulateCudaGraph)
EXECUTE_IN_GRAPH(cudnnBackendUpdateCudaGraph)

/* ---- handles and descriptors of the older interface --------------------------------------------------------------------- */

enum { DIMENSIONS = 8 };

/* One structure for all descriptors of the older interface: each uses what it needs. */
struct shape {
  int type, rank;
  int sizes[DIMENSIONS], strides[DIMENSIONS];
};

static int make(void **made, size_t bytes) {
  if (made == NULL) return BAD_PARAM;
  *made = calloc(1, bytes);
  return *made ? SUCCESS : INTERNAL_ERROR;
}

static int drop(void *descriptor) {
  free(descriptor);
  return SUCCESS;
}

ANSWER int cudnnCreate(void **handle) {
  LOCKED process_cudnn();
  return make(handle, sizeof(struct handle));
}
ANSWER int cudnnDestroy(void *handle) { return drop(handle); }

ANSWER int cudnnSetStream(void *handle, void *stream) {
  if (handle == NULL) return BAD_PARAM;
  ((struct handle *)handle)->stream = stream;
  return SUCCESS;
}

ANSWER int cudnnGetStream(void *handle, void **stream) {
  if (handle == NULL || stream == NULL) return BAD_PARAM;
  *stream = ((struct handle *)handle)->stream;
  return SUCCESS;
}

#define DESCRIPTOR(name, type)                                                          \
  ANSWER int cudnnCreate##name##Descriptor(void **made) { return make(made, sizeof(type)); } \
  ANSWER int cudnnDestroy##name##Descriptor(void *descriptor) { return drop(descriptor); }

struct dropout {
  float probability;
};

struct recurrent {
  int algorithm, mode, bias, directions, type, inputs, hidden, projection, layers, dropout;
};

struct sequence {
  int steps, batch, inputs;
  int64_t rows; /* of packed sequences the sum of their lengths, else 0 */
};

DESCRIPTOR(Tensor, struct shape)
DESCRIPTOR(Filter, struct shape)
DESCRIPTOR(Activation, int)
DESCRIPTOR(Convolution, int)
DESCRIPTOR(Pooling, int)
DESCRIPTOR(SpatialTransformer, int)
DESCRIPTOR(CTCLoss, int)
DESCRIPTOR(Dropout, struct dropout)
DESCRIPTOR(ReduceTensor, int)
DESCRIPTOR(RNN, struct recurrent)
DESCRIPTOR(RNNData, struct sequence)

ANSWER int cudnnSetTensorNdDescriptor(void *descriptor, int type, int rank, const int *sizes, const int *strides) {
  struct shape *shape = descriptor;
  if (shape == NULL || rank < 1 || rank > DIMENSIONS) return BAD_PARAM;
  shape->type = type;
  shape->rank = rank;
  memcpy(shape->sizes, sizes, rank * sizeof *sizes);
  memcpy(shape->strides, strides, rank * sizeof *strides);
  return SUCCESS;
}

/* Reductions: a copy of the input in float32 (double's own), with indices two, and an index for each result. As the kernels of ONNX
   Runtime that ask for it were measured on an H200 (runtimes/onnxruntime/kernels/scratch/reduction.py, `_reduce`, `_arg`). */
static size_t elements_of(const struct shape *shape) {
  size_t count = 1;
  for (int i = 0; i < shape->rank; i++) count *= (size_t)shape->sizes[i];
  return count;
}
enum { DOUBLE = 1 }; /* CUDNN_DATA_DOUBLE */
ANSWER int cudnnSetReduceTensorDescriptor(void *descriptor, int operation, int type, int nans, int indices, int index_type) {
  (void)operation; (void)type; (void)nans; (void)index_type;
  if (descriptor == NULL) return BAD_PARAM;
  *(int *)descriptor = indices;
  return SUCCESS;
}
ANSWER int cudnnGetReductionWorkspaceSize(void *handle, const void *reduction, const void *a, const void *c, size_t *bytes) {
  (void)handle; (void)c;
  if (reduction == NULL || a == NULL || bytes == NULL) return BAD_PARAM;
  const struct shape *source = a;
  *bytes = elements_of(source) * (source->type == DOUBLE ? 8 : 4) * (*(const int *)reduction ? 2 : 1);
  return SUCCESS;
}
ANSWER int cudnnGetReductionIndicesSize(void *handle, const void *reduction, const void *a, const void *c, size_t *bytes) {
  (void)handle; (void)a;
  if (reduction == NULL || c == NULL || bytes == NULL) return BAD_PARAM;
  *bytes = *(const int *)reduction ? elements_of(c) * 4 : 0;
  return SUCCESS;
}

ANSWER int cudnnGetTensorNdDescriptor(const void *descriptor, int requested, int *type, int *rank, int *sizes, int *strides) {
  const struct shape *shape = descriptor;
  if (shape == NULL) return BAD_PARAM;
  int given = requested < shape->rank ? requested : shape->rank;
  if (type) *type = shape->type;
  if (rank) *rank = shape->rank;
  if (sizes) memcpy(sizes, shape->sizes, given * sizeof *sizes);
  if (strides) memcpy(strides, shape->strides, given * sizeof *strides);
  return SUCCESS;
}

ANSWER int cudnnSetFilterNdDescriptor(void *descriptor, int type, int format, int rank, const int *sizes) {
  int strides[DIMENSIONS] = {format};
  return cudnnSetTensorNdDescriptor(descriptor, type, rank, sizes, strides);
}

ANSWER int cudnnGetFilterNdDescriptor(const void *descriptor, int requested, int *type, int *format, int *rank, int *sizes) {
  int strides[DIMENSIONS];
  int status = cudnnGetTensorNdDescriptor(descriptor, requested, type, rank, sizes, NULL);
  if (status == SUCCESS && format) {
    cudnnGetTensorNdDescriptor(descriptor, DIMENSIONS, NULL, NULL, NULL, strides);
    *format = strides[0];
  }
  return status;
}

/* Asks for sizes: `wanted` of them. */
static int ask_for_sizes(struct line *line, int wanted, size_t **sizes) {
  int64_t *numbers;
  int64_t count = question_ask(line, &numbers);
  int status = count == wanted ? SUCCESS : NO_PLAN;
  for (int i = 0; status == SUCCESS && i < wanted; i++)
    if (sizes[i]) *sizes[i] = (size_t)numbers[i];
  free(numbers);
  return status;
}

static void add_ints(struct line *line, const char *name, int count, const int *numbers) {
  int64_t wide[DIMENSIONS];
  for (int i = 0; i < count; i++) wide[i] = numbers[i];
  line_add_numbers(line, name, count, wide);
}

static void add_shape(struct line *line, const struct shape *shape) {
  line_add(line, ",\"type\":%d", shape->type);
  add_ints(line, "shape", shape->rank, shape->sizes);
  add_ints(line, "strides", shape->rank, shape->strides);
}

/* ---- batch norm --------------------------------------------------------------------------------------------------------- */

static int batch_norm(const char *what, int mode, int operations, const void *x, size_t *bytes) {
  struct line line = {0};
  if (x == NULL || bytes == NULL) return BAD_PARAM;
  line_add(&line, "{\"about\":\"cudnn.batch_norm\",\"what\":\"%s\",\"mode\":%d,\"operations\":%d", what, mode, operations);
  add_shape(&line, x);
  line_add(&line, "}");
  return ask_for_sizes(&line, 1, (size_t *[]){bytes});
}

ANSWER int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int operations, const void *x, const void *z,
                                                             const void *y, const void *scale, const void *activation, size_t *bytes) {
  (void)handle, (void)z, (void)y, (void)scale, (void)activation;
  return batch_norm("forward", mode, operations, x, bytes);
}

ANSWER int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int operations, const void *x, const void *y,
                                                      const void *dy, const void *dz, const void *dx, const void *scale,
                                                      const void *activation, size_t *bytes) {
  (void)handle, (void)y, (void)dy, (void)dz, (void)dx, (void)scale, (void)activation;
  return batch_norm("backward", mode, operations, x, bytes);
}

ANSWER int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int operations, const void *activation, const void *x,
                                                         size_t *bytes) {
  (void)handle, (void)activation;
  return batch_norm("reserve", mode, operations, x, bytes);
}

/* ---- dropout and recurrent layers ------------------------------------------------------------------------------------------ */

ANSWER int cudnnDropoutGetStatesSize(void *handle, size_t *bytes) {
  struct line line = {0};
  (void)handle;
  if (bytes == NULL) return BAD_PARAM;
  line_add(&line, "{\"about\":\"cudnn.dropout_states\"}");
  return ask_for_sizes(&line, 1, (size_t *[]){bytes});
}

ANSWER int cudnnSetDropoutDescriptor(void *descriptor, void *handle, float probability, void *states, size_t bytes, unsigned long long seed) {
  (void)handle, (void)states, (void)bytes, (void)seed;
  if (descriptor == NULL) return BAD_PARAM;
  ((struct dropout *)descriptor)->probability = probability;
  return SUCCESS;
}

ANSWER int cudnnRestoreDropoutDescriptor(void *descriptor, void *handle, float probability, void *states, size_t bytes,
                                  unsigned long long seed) {
  return cudnnSetDropoutDescriptor(descriptor, handle, probability, states, bytes, seed);
}

ANSWER int cudnnSetRNNDescriptor_v8(void *descriptor, int algorithm, int mode, int bias, int directions, int input_mode, int type, int precision,
                             int math, int32_t inputs, int32_t hidden, int32_t projection, int32_t layers, void *dropout,
                             uint32_t flags) {
  (void)input_mode, (void)precision, (void)math, (void)flags;
  if (descriptor == NULL) return BAD_PARAM;
  *(struct recurrent *)descriptor = (struct recurrent){
      algorithm, mode, bias, directions + 1, type, inputs, hidden, projection, layers,
      dropout && ((struct dropout *)dropout)->probability > 0,
  };
  return SUCCESS;
}

enum { PACKED = 1 }; /* cudnnRNNDataLayout_t */
ANSWER int cudnnSetRNNDataDescriptor(void *descriptor, int type, int layout, int steps, int batch, int inputs, const int *lengths,
                              void *padding) {
  (void)type, (void)padding;
  if (descriptor == NULL || lengths == NULL) return BAD_PARAM;
  int64_t rows = 0;
  for (int i = 0; layout == PACKED && i < batch; i++) rows += lengths[i];
  *(struct sequence *)descriptor = (struct sequence){steps, batch, inputs, rows};
  return SUCCESS;
}

ANSWER int cudnnGetRNNTempSpaceSizes(void *handle, void *layer, int training, void *data, size_t *workspace, size_t *reserve) {
  const struct recurrent *rnn = layer;
  const struct sequence *sequence = data;
  struct line line = {0};
  (void)handle;
  if (rnn == NULL || sequence == NULL) return BAD_PARAM;
  line_add(&line,
           "{\"about\":\"cudnn.recurrent\",\"training\":%d,\"algorithm\":%d,\"mode\":%d,\"directions\":%d,\"type\":%d,\"inputs\":%d,"
           "\"hidden\":%d,\"projection\":%d,\"layers\":%d,\"dropout\":%d,\"steps\":%d,\"batch\":%d,\"rows\":%lld}",
           training, rnn->algorithm, rnn->mode, rnn->directions, rnn->type, rnn->inputs, rnn->hidden, rnn->projection, rnn->layers,
           rnn->dropout, sequence->steps, sequence->batch, (long long)sequence->rows);
  return ask_for_sizes(&line, 2, (size_t *[]){workspace, reserve});
}

/* Numbers of matrices a layer multiplies its input and its state with, by cudnnRNNMode_t. */
static const int GATES[] = {1, 1, 4, 3};

static int element_bytes(int type) { return type == 1 ? 8 : type == 0 ? 4 : 2; }

static int output_size(const struct recurrent *rnn) { return rnn->projection ? rnn->projection : rnn->hidden; }

/* Columns of the matrices of a pseudo-layer (a layer in one direction) that meet the input. */
static int64_t input_columns(const struct recurrent *rnn, int pseudo_layer) {
  return pseudo_layer < rnn->directions ? rnn->inputs : (int64_t)output_size(rnn) * rnn->directions;
}

static int is_projected(const struct recurrent *rnn) { return rnn->projection && rnn->projection != rnn->hidden; }

/* Elements of all matrices of a pseudo-layer. */
static int64_t matrix_elements(const struct recurrent *rnn, int pseudo_layer) {
  int64_t columns = input_columns(rnn, pseudo_layer) + output_size(rnn);
  return GATES[rnn->mode] * rnn->hidden * columns + (is_projected(rnn) ? (int64_t)rnn->projection * rnn->hidden : 0);
}

static int64_t matrices_before(const struct recurrent *rnn, int pseudo_layer) {
  int64_t count = 0;
  for (int i = 0; i < pseudo_layer; i++) count += matrix_elements(rnn, i);
  return count;
}

static int biases_per_gate(const struct recurrent *rnn) { return rnn->bias == 0 ? 0 : rnn->bias == 2 ? 2 : 1; }

ANSWER int cudnnGetRNNWeightSpaceSize(void *handle, void *layer, size_t *bytes) {
  const struct recurrent *rnn = layer;
  (void)handle;
  if (rnn == NULL || bytes == NULL || rnn->mode < 0 || rnn->mode > 3) return BAD_PARAM;
  int64_t all = (int64_t)rnn->layers * rnn->directions, biases = all * GATES[rnn->mode] * rnn->hidden * biases_per_gate(rnn);
  *bytes = (matrices_before(rnn, all) + biases) * element_bytes(rnn->type);
  return SUCCESS;
}

/* Where one matrix and one bias lie: all matrices in the order of the layers, then all biases, without padding
   (libraries/cudnn/recurrent.py, rule 6). */
ANSWER int cudnnGetRNNWeightParams(void *handle, void *layer, int32_t pseudo_layer, size_t bytes, const void *weights, int32_t number,
                            void *matrix, void **matrix_at, void *bias, void **bias_at) {
  const struct recurrent *rnn = layer;
  (void)handle, (void)bytes;
  if (rnn == NULL || rnn->mode < 0 || rnn->mode > 3) return BAD_PARAM;
  int gates = GATES[rnn->mode], all = rnn->layers * rnn->directions, ones[3] = {1, 1, 1};
  int64_t columns = input_columns(rnn, pseudo_layer), before = matrices_before(rnn, pseudo_layer);
  int64_t rows = rnn->hidden, input_part = gates * rows * columns, own = columns, at = number * rows * columns;
  if (number >= gates) {
    own = output_size(rnn);
    at = input_part + (number - gates) * rows * own;
  }
  if (number == 2 * gates) { /* the projection's */
    rows = rnn->projection;
    own = rnn->hidden;
  }
  int element = element_bytes(rnn->type), no_matrix = number == 2 * gates && !is_projected(rnn);
  if (matrix && matrix_at) {
    int sizes[3] = {1, no_matrix ? 0 : (int)rows, no_matrix ? 0 : (int)own};
    int strides[3] = {(int)(rows * own), (int)own, 1};
    cudnnSetTensorNdDescriptor(matrix, rnn->type, 3, no_matrix ? ones : sizes, strides);
    *matrix_at = no_matrix ? NULL : (char *)weights + (before + at) * element;
  }
  if (bias && bias_at) {
    int per_gate = biases_per_gate(rnn), sizes[3] = {1, rnn->hidden, 1}, strides[3] = {rnn->hidden, 1, 1};
    int has = number < per_gate * gates;
    cudnnSetTensorNdDescriptor(bias, rnn->type, 3, has ? sizes : ones, strides);
    int64_t place = ((int64_t)pseudo_layer * per_gate * gates + number) * rnn->hidden;
    *bias_at = has ? (char *)weights + (matrices_before(rnn, all) + place) * element : NULL;
  }
  return SUCCESS;
}

/* ---- connectionist temporal classification ----------------------------------------------------------------------------------- */

/* What a loss is told of its targets: the length of the longest (the newer call's descriptor). */
static int ctc(int newer, int longest, const void *scores, size_t *bytes) {
  struct line line = {0};
  if (scores == NULL || bytes == NULL) return BAD_PARAM;
  line_add(&line, "{\"about\":\"cudnn.ctc\",\"newer\":%d,\"longest\":%d", newer, longest);
  add_shape(&line, scores);
  line_add(&line, "}");
  return ask_for_sizes(&line, 1, (size_t *[]){bytes});
}

ANSWER int cudnnGetCTCLossWorkspaceSize(void *handle, const void *scores, const void *gradients, const int *labels,
                                        const int *label_lengths, const int *input_lengths, int algorithm, void *descriptor,
                                        size_t *bytes) {
  (void)handle, (void)gradients, (void)labels, (void)input_lengths, (void)algorithm, (void)descriptor;
  const struct shape *shape = scores;
  int longest = 0;
  for (int i = 0; shape && i < shape->sizes[1]; i++)
    if (label_lengths[i] > longest) longest = label_lengths[i];
  return ctc(0, longest, scores, bytes);
}

ANSWER int cudnnGetCTCLossWorkspaceSize_v8(void *handle, int algorithm, void *descriptor, const void *scores, const void *gradients,
                                           size_t *bytes) {
  (void)handle, (void)algorithm, (void)gradients;
  return descriptor ? ctc(1, *(int *)descriptor, scores, bytes) : BAD_PARAM;
}

ANSWER int cudnnSetCTCLossDescriptor_v9(void *descriptor, int type, int normalization, int gradients, int longest) {
  (void)type, (void)normalization, (void)gradients;
  if (descriptor == NULL) return BAD_PARAM;
  *(int *)descriptor = longest;
  return SUCCESS;
}

ANSWER int cudnnSetCTCLossDescriptor_v8(void *descriptor, int type, int normalization, int gradients, int longest) {
  return cudnnSetCTCLossDescriptor_v9(descriptor, type, normalization, gradients, longest);
}

/* ---- kernels, and settings that decide no memory: nothing to do --------------------------------------------------------------- */

#define NOTHING(name) \
  ANSWER int name(void) { return SUCCESS; }
NOTHING(cudnnBatchNormalizationForwardTrainingEx) NOTHING(cudnnBatchNormalizationForwardInference)
NOTHING(cudnnBatchNormalizationBackwardEx) NOTHING(cudnnRNNForward) NOTHING(cudnnRNNBackwardData_v8)
NOTHING(cudnnRNNBackwardWeights_v8) NOTHING(cudnnCTCLoss) NOTHING(cudnnCTCLoss_v8) NOTHING(cudnnSetCTCLossDescriptor)
NOTHING(cudnnSetCTCLossDescriptorEx) NOTHING(cudnnSetActivationDescriptor) NOTHING(cudnnSetPooling2dDescriptor)
NOTHING(cudnnPoolingForward) NOTHING(cudnnSetSpatialTransformerNdDescriptor) NOTHING(cudnnSpatialTfGridGeneratorForward)
NOTHING(cudnnSpatialTfGridGeneratorBackward) NOTHING(cudnnSpatialTfSamplerForward) NOTHING(cudnnSpatialTfSamplerBackward)
NOTHING(cudnnSetConvolutionNdDescriptor) NOTHING(cudnnSetConvolutionGroupCount) NOTHING(cudnnSetConvolutionMathType)

/* ---- what is not answered: cuDNN 7's convolutions, which PyTorch calls with TORCH_CUDNN_V8_API_DISABLED alone --------------------- */

#define UNANSWERED(name) \
  ANSWER int name(void) { refused(#name); return NO_PLAN; }
UNANSWERED(cudnnConvolutionForward) UNANSWERED(cudnnConvolutionBackwardData) UNANSWERED(cudnnConvolutionBackwardFilter)
UNANSWERED(cudnnConvolutionBiasActivationForward) UNANSWERED(cudnnFindConvolutionForwardAlgorithmEx)
UNANSWERED(cudnnFindConvolutionBackwardDataAlgorithmEx) UNANSWERED(cudnnFindConvolutionBackwardFilterAlgorithmEx)
UNANSWERED(cudnnGetConvolutionForwardAlgorithm_v7) UNANSWERED(cudnnGetConvolutionBackwardDataAlgorithm_v7)
UNANSWERED(cudnnGetConvolutionBackwardFilterAlgorithm_v7) UNANSWERED(cudnnGetConvolutionForwardWorkspaceSize)
UNANSWERED(cudnnGetConvolutionBackwardDataWorkspaceSize) UNANSWERED(cudnnGetConvolutionBackwardFilterWorkspaceSize)
