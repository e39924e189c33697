// STAND-IN for libcuda.so.1, the CUDA driver's library. For tests on machines without a GPU; never shipped.
//
// It does what the agent needs, really: device memory is host memory, a stream is a thread that works its queue off in
// order, and the six kernels of src/agent/kernels/all_reduce.cu are functions here that compute the same. It is strict where
// the real one is: no call before cuInit, none without a current context, no kernel on memory that was not allocated; a
// stream made with CU_STREAM_NON_BLOCKING is not waited for by cuMemcpy.
//
// Which GPUs there are and what goes wrong is asked of the environment: README.md. The stand-in for NCCL uses the functions
// standin_cuda_* at the end.

#include "elements.h"
#include "fault.h"
#include <ctype.h>
#include <pthread.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  INVALID_PTX = 218,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  NON_BLOCKING = 1,
  MOST_GPUS = 64,
};

static const struct {
  CUresult code;
  const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on non supported HW"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

// One lock for all state below; never held while an operation of a stream runs.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialized;
static int gpu_count;
static int physical[MOST_GPUS];  // the GPU's own number, by CUDA's (CUDA_VISIBLE_DEVICES)
static CUresult sticky;          // an error of a kernel: the context is lost, every later call fails with it

struct context {
  CUdevice device;
  int retained;
};
static struct context primary[MOST_GPUS];
static __thread struct context *current;

struct allocation {
  CUdeviceptr start;
  size_t size;
  CUdevice device;
  struct allocation *next;
};
static struct allocation *allocations;

// --- Devices ---------------------------------------------------------------------------------------------------------

static void find_gpus(void) {
  int present = (int)standin_number("STANDIN_GPUS", 1);
  if (present > MOST_GPUS) present = MOST_GPUS;
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  gpu_count = 0;
  if (visible == NULL) {
    while (gpu_count < present) physical[gpu_count] = gpu_count, gpu_count++;
    return;
  }
  // As the real one: the list ends at the first number that is none of a GPU.
  while (gpu_count < MOST_GPUS) {
    char *end;
    long number = strtol(visible, &end, 10);
    if (end == visible || number < 0 || number >= present) break;
    physical[gpu_count++] = (int)number;
    if (*end != ',') break;
    visible = end + 1;
  }
}

EXPORT CUresult cuInit(unsigned flags) {
  STANDIN_CALL();
  if (flags != 0) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  find_gpus();
  initialized = gpu_count > 0;
  pthread_mutex_unlock(&lock);
  return gpu_count > 0 ? SUCCESS : NO_DEVICE;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
  STANDIN_CALL();
  *version = (int)standin_number("STANDIN_CUDA_VERSION", 13000);
  return SUCCESS;
}

static CUresult describe(CUresult code, const char **text, bool name) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (errors[i].code != code) continue;
    *text = name ? errors[i].name : errors[i].text;
    return SUCCESS;
  }
  *text = NULL;
  return INVALID_VALUE;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **text) { return describe(code, text, true); }

EXPORT CUresult cuGetErrorString(CUresult code, const char **text) { return describe(code, text, false); }

#define NEED_DEVICE(device)                                                                                            \
  do {                                                                                                                 \
    if (!initialized) return NOT_INITIALIZED;                                                                          \
    if ((device) < 0 || (device) >= gpu_count) return INVALID_DEVICE;                                                  \
  } while (0)

#define NEED_CONTEXT()                                                                                                 \
  do {                                                                                                                 \
    if (!initialized) return NOT_INITIALIZED;                                                                          \
    if (current == NULL || current->retained == 0) return INVALID_CONTEXT;                                             \
    if (sticky != SUCCESS) return sticky;                                                                              \
  } while (0)

EXPORT CUresult cuDeviceGetCount(int *count) {
  STANDIN_CALL();
  if (!initialized) return NOT_INITIALIZED;
  *count = gpu_count;
  return SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  STANDIN_CALL();
  NEED_DEVICE(ordinal);
  *device = ordinal;
  return SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  STANDIN_CALL();
  NEED_DEVICE(device);
  if (length <= 0) return INVALID_VALUE;
  const char *given = getenv("STANDIN_GPU_NAME");
  snprintf(name, (size_t)length, "%s", given != NULL ? given : "Stand-in GPU");
  return SUCCESS;
}

static size_t gpu_memory(void) { return (size_t)standin_number("STANDIN_GPU_MEMORY", 80ll << 30); }

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  STANDIN_CALL();
  NEED_DEVICE(device);
  *bytes = gpu_memory();
  return SUCCESS;
}

static int bus_of(CUdevice device) { return 0x1a + physical[device]; }

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  STANDIN_CALL();
  NEED_DEVICE(device);
  // STANDIN_GPU_ATTRIBUTES: `75=8,76=0`, by the numbers of CUdevice_attribute.
  const char *given = getenv("STANDIN_GPU_ATTRIBUTES");
  while (given != NULL && *given != 0) {
    int number, wanted;
    if (sscanf(given, "%d=%d", &number, &wanted) != 2) break;
    if (number == attribute) {
      *value = wanted;
      return SUCCESS;
    }
    given = strchr(given, ',');
    if (given != NULL) given++;
  }
  switch (attribute) {
    case 1: *value = 1024; break;             // MAX_THREADS_PER_BLOCK
    case 2: *value = 1024; break;             // MAX_BLOCK_DIM_X
    case 5: *value = 2147483647; break;       // MAX_GRID_DIM_X
    case 10: *value = 32; break;              // WARP_SIZE
    case 16: *value = 132; break;             // MULTIPROCESSOR_COUNT
    case 32: *value = 1; break;               // ECC_ENABLED
    case 33: *value = bus_of(device); break;  // PCI_BUS_ID
    case 34: case 50: *value = 0; break;      // PCI_DEVICE_ID, PCI_DOMAIN_ID
    case 39: *value = 2048; break;            // MAX_THREADS_PER_MULTIPROCESSOR
    case 41: *value = 1; break;               // UNIFIED_ADDRESSING
    case 75: *value = 9; break;               // COMPUTE_CAPABILITY_MAJOR
    case 76: *value = 0; break;               // COMPUTE_CAPABILITY_MINOR
    case 116: *value = 1; break;              // GPU_DIRECT_RDMA_SUPPORTED
    case 124: *value = 1; break;              // DMA_BUF_SUPPORTED
    default: return INVALID_VALUE;
  }
  return SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *address, int length, CUdevice device) {
  STANDIN_CALL();
  NEED_DEVICE(device);
  if (length < 13) return INVALID_VALUE;
  snprintf(address, (size_t)length, "0000:%02X:00.0", bus_of(device));
  return SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  STANDIN_CALL();
  NEED_DEVICE(device);
  NEED_DEVICE(peer);
  *can = device != peer && standin_number("STANDIN_PEER_ACCESS", 1) != 0;
  return SUCCESS;
}

// --- Contexts --------------------------------------------------------------------------------------------------------

EXPORT CUresult cuDevicePrimaryCtxRetain(struct context **context, CUdevice device) {
  STANDIN_CALL();
  NEED_DEVICE(device);
  pthread_mutex_lock(&lock);
  primary[device].device = device;
  primary[device].retained++;
  pthread_mutex_unlock(&lock);
  *context = &primary[device];
  return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  STANDIN_CALL();
  NEED_DEVICE(device);
  pthread_mutex_lock(&lock);
  bool retained = primary[device].retained > 0;
  if (retained) primary[device].retained--;
  pthread_mutex_unlock(&lock);
  return retained ? SUCCESS : INVALID_CONTEXT;
}

EXPORT CUresult cuCtxSetCurrent(struct context *context) {
  STANDIN_CALL();
  if (!initialized) return NOT_INITIALIZED;
  if (context != NULL && (context < primary || context >= primary + MOST_GPUS)) return INVALID_CONTEXT;
  current = context;
  return SUCCESS;
}

// --- Streams ---------------------------------------------------------------------------------------------------------

struct operation {
  CUresult (*function)(void *argument);
  void *argument;
  struct operation *next;
};

struct stream {
  bool non_blocking;
  unsigned long queued, done;  // operations so far
  bool ending;
  struct operation *first, **last;
  struct stream *next;  // in `streams`
};
static struct stream *streams;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct stream *legacy;  // what a null handle means

static void *work_off(void *argument) {
  struct stream *stream = argument;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (stream->first == NULL && !stream->ending) pthread_cond_wait(&changed, &lock);
    struct operation *operation = stream->first;
    if (operation == NULL) break;
    stream->first = operation->next;
    if (stream->first == NULL) stream->last = &stream->first;
    // After an error nothing of this process runs any more.
    bool lost = sticky != SUCCESS;
    pthread_mutex_unlock(&lock);
    CUresult result = lost ? SUCCESS : operation->function(operation->argument);
    free(operation->argument);
    free(operation);
    pthread_mutex_lock(&lock);
    if (result != SUCCESS && sticky == SUCCESS) sticky = result;
    stream->done++;
    pthread_cond_broadcast(&changed);
  }
  for (struct stream **link = &streams; *link != NULL; link = &(*link)->next) {
    if (*link != stream) continue;
    *link = stream->next;
    break;
  }
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  free(stream);
  return NULL;
}

// With the lock held.
static struct stream *new_stream(bool non_blocking) {
  struct stream *stream = calloc(1, sizeof *stream);
  stream->non_blocking = non_blocking;
  stream->last = &stream->first;
  pthread_t thread;
  if (pthread_create(&thread, NULL, work_off, stream) != 0) {
    free(stream);
    return NULL;
  }
  pthread_detach(thread);
  stream->next = streams;
  streams = stream;
  return stream;
}

// With the lock held: the stream of a handle; NULL: there is none.
static struct stream *stream_of(struct stream *handle) {
  if (handle == NULL) {
    if (legacy == NULL) legacy = new_stream(false);
    return legacy;
  }
  for (struct stream *stream = streams; stream != NULL; stream = stream->next) {
    if (stream == handle && !stream->ending) return stream;
  }
  return NULL;
}

// Takes the argument, which free() can free.
static CUresult enqueue(struct stream *handle, CUresult (*function)(void *), void *argument) {
  pthread_mutex_lock(&lock);
  struct stream *stream = stream_of(handle);
  if (stream == NULL) {
    pthread_mutex_unlock(&lock);
    free(argument);
    return 400;
  }
  struct operation *operation = calloc(1, sizeof *operation);
  operation->function = function;
  operation->argument = argument;
  *stream->last = operation;
  stream->last = &operation->next;
  stream->queued++;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

// With the lock held: waits for what is queued by now.
static void wait_for(struct stream *stream) {
  unsigned long goal = stream->queued;
  while (stream->done < goal) pthread_cond_wait(&changed, &lock);
}

// With the lock held: waits for every stream, or for those alone that the legacy stream waits for.
static void wait_for_all(bool non_blocking_too) {
  for (bool waited = true; waited;) {
    waited = false;
    for (struct stream *stream = streams; stream != NULL; stream = stream->next) {
      if (stream->done == stream->queued || (stream->non_blocking && !non_blocking_too)) continue;
      pthread_cond_wait(&changed, &lock);
      // The list may have changed.
      waited = true;
      break;
    }
  }
}

EXPORT CUresult cuStreamCreate(struct stream **handle, unsigned flags) {
  STANDIN_CALL();
  NEED_CONTEXT();
  if (flags > NON_BLOCKING) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  *handle = new_stream(flags == NON_BLOCKING);
  pthread_mutex_unlock(&lock);
  return *handle != NULL ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT CUresult cuStreamQuery(struct stream *handle) {
  STANDIN_CALL();
  NEED_CONTEXT();
  pthread_mutex_lock(&lock);
  struct stream *stream = stream_of(handle);
  CUresult result = stream == NULL ? 400 : sticky != SUCCESS ? sticky : stream->done < stream->queued ? NOT_READY : SUCCESS;
  pthread_mutex_unlock(&lock);
  return result;
}

EXPORT CUresult cuStreamSynchronize(struct stream *handle) {
  STANDIN_CALL();
  NEED_CONTEXT();
  pthread_mutex_lock(&lock);
  struct stream *stream = stream_of(handle);
  if (stream != NULL) wait_for(stream);
  CUresult result = stream == NULL ? 400 : sticky;
  pthread_mutex_unlock(&lock);
  return result;
}

// Returns at once; what is queued is still done.
EXPORT CUresult cuStreamDestroy_v2(struct stream *handle) {
  STANDIN_CALL();
  if (!initialized) return NOT_INITIALIZED;
  pthread_mutex_lock(&lock);
  struct stream *stream = handle == NULL ? NULL : stream_of(handle);
  if (stream != NULL) stream->ending = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return stream != NULL ? SUCCESS : 400;
}

EXPORT CUresult cuCtxSynchronize(void) {
  STANDIN_CALL();
  NEED_CONTEXT();
  pthread_mutex_lock(&lock);
  wait_for_all(true);
  pthread_mutex_unlock(&lock);
  return sticky;
}

// --- Memory ----------------------------------------------------------------------------------------------------------

static size_t allocated_on(CUdevice device) {
  size_t sum = 0;
  for (struct allocation *one = allocations; one != NULL; one = one->next) {
    if (one->device == device) sum += one->size;
  }
  return sum;
}

// Does one allocation hold all these bytes?
static bool holds(CUdeviceptr start, size_t bytes) {
  pthread_mutex_lock(&lock);
  struct allocation *one = allocations;
  while (one != NULL && !(start >= one->start && start - one->start <= one->size && bytes <= one->size - (start - one->start)))
    one = one->next;
  pthread_mutex_unlock(&lock);
  return one != NULL;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  STANDIN_CALL();
  NEED_CONTEXT();
  if (bytes == 0) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  size_t used = allocated_on(current->device);
  void *memory = MAP_FAILED;
  if (used <= gpu_memory() && bytes <= gpu_memory() - used)
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory != MAP_FAILED) {
    struct allocation *one = calloc(1, sizeof *one);
    *one = (struct allocation){(CUdeviceptr)memory, bytes, current->device, allocations};
    allocations = one;
    *address = one->start;
  }
  pthread_mutex_unlock(&lock);
  return memory != MAP_FAILED ? SUCCESS : OUT_OF_MEMORY;
}

// As the real one, it waits for what may still use the memory.
EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  STANDIN_CALL();
  NEED_CONTEXT();
  if (address == 0) return SUCCESS;
  pthread_mutex_lock(&lock);
  wait_for_all(true);
  struct allocation **link = &allocations, *found;
  while (*link != NULL && (*link)->start != address) link = &(*link)->next;
  found = *link;
  if (found != NULL) {
    *link = found->next;
    munmap((void *)found->start, found->size);
    free(found);
  }
  pthread_mutex_unlock(&lock);
  return found != NULL ? SUCCESS : INVALID_VALUE;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  STANDIN_CALL();
  NEED_CONTEXT();
  pthread_mutex_lock(&lock);
  *total = gpu_memory();
  *free_bytes = *total - allocated_on(current->device);
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

// A copy or a fill in a stream.
struct transfer {
  CUdeviceptr to, from;
  size_t bytes;  // of the copy or the fill
  uint32_t value;
  int width;  // of the value, in bytes; 0: a copy
};

static CUresult transfer(void *argument) {
  const struct transfer *what = argument;
  if (!holds(what->to, what->bytes)) return ILLEGAL_ADDRESS;
  if (what->width == 0) {
    if (!holds(what->from, what->bytes)) return ILLEGAL_ADDRESS;
    memmove((void *)what->to, (const void *)what->from, what->bytes);
  } else if (what->width == 1) {
    memset((void *)what->to, (int)what->value, what->bytes);
  } else {
    uint32_t *words = (uint32_t *)what->to;
    for (size_t i = 0; i < what->bytes / 4; i++) words[i] = what->value;
  }
  return SUCCESS;
}

static CUresult enqueue_transfer(struct stream *stream, struct transfer what) {
  struct transfer *copy = malloc(sizeof *copy);
  *copy = what;
  return enqueue(stream, transfer, copy);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, struct stream *stream) {
  STANDIN_CALL();
  NEED_CONTEXT();
  if (!holds(to, count)) return INVALID_VALUE;
  return enqueue_transfer(stream, (struct transfer){to, 0, count, value, 1});
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, struct stream *stream) {
  STANDIN_CALL();
  NEED_CONTEXT();
  if (to % 4 != 0 || !holds(to, count * 4)) return INVALID_VALUE;
  return enqueue_transfer(stream, (struct transfer){to, 0, count * 4, value, 4});
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, struct stream *stream) {
  STANDIN_CALL();
  NEED_CONTEXT();
  if (!holds(to, bytes) || !holds(from, bytes)) return INVALID_VALUE;
  return enqueue_transfer(stream, (struct transfer){to, from, bytes, 0, 0});
}

// In the legacy stream: after what the blocking streams have queued.
static CUresult copy_now(void *to, const void *from, size_t bytes, CUdeviceptr device) {
  if (!holds(device, bytes)) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  wait_for_all(false);
  CUresult result = sticky;
  pthread_mutex_unlock(&lock);
  if (result == SUCCESS) memcpy(to, from, bytes);
  return result;
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  STANDIN_CALL();
  NEED_CONTEXT();
  return copy_now(to, (const void *)from, bytes, from);
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  STANDIN_CALL();
  NEED_CONTEXT();
  return copy_now((void *)to, from, bytes, to);
}

// --- Kernels ---------------------------------------------------------------------------------------------------------

// See src/agent/kernels/all_reduce.cu, which says what the data is.
static uint64_t mix(uint64_t seed, uint64_t index) {
  uint64_t x = index * 0x9E3779B97F4A7C15ull + seed;
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  x ^= x >> 31;
  return x;
}

enum type { FLOAT, HALF, BFLOAT16 };
static const int largest[] = {524287, 127, 15};
static const size_t width[] = {4, 2, 2};

static int64_t contribution(enum type type, uint64_t element, uint64_t slot) {
  return (int64_t)(mix(element, slot) % (2 * (uint64_t)largest[type] + 1)) - largest[type];
}

static uint32_t bits_of(enum type type, int64_t value) {
  return type == FLOAT ? float_bits((float)value) : type == HALF ? float_half((float)value) : float_bfloat16((float)value);
}

struct launch {
  enum type type;
  bool is_check;
  CUdeviceptr data, result;
  uint64_t count, seed;
  uint32_t rank, ranks;
};

static CUresult run_kernel(void *argument) {
  const struct launch *launch = argument;
  const enum type type = launch->type;
  if (!holds(launch->data, launch->count * width[type])) return ILLEGAL_ADDRESS;
  if (launch->data % width[type] != 0) return 716;  // misaligned address
  if (launch->is_check && !holds(launch->result, 16)) return ILLEGAL_ADDRESS;
  uint32_t *words = (uint32_t *)launch->data;
  uint16_t *shorts = (uint16_t *)launch->data;
  uint64_t *result = (uint64_t *)launch->result;
  const uint32_t ranks = launch->ranks, slots = ranks < 16 ? ranks : 16;
  for (uint64_t index = 0; index < launch->count; index++) {
    const uint64_t element = mix(launch->seed, index);
    if (launch->is_check) {
      int64_t sum = 0;
      for (uint32_t slot = 0; slot < slots; slot++) sum += contribution(type, element, slot);
      uint32_t found = type == FLOAT ? words[index] : shorts[index];
      if (found == bits_of(type, sum)) continue;
      result[0]++;
      if (index < result[1]) result[1] = index;
      continue;
    }
    const uint32_t start = (uint32_t)(element >> 32) % ranks;
    const uint32_t slot = (launch->rank + ranks - start) % ranks;
    const uint32_t bits = bits_of(type, slot < slots ? contribution(type, element, slot) : 0);
    if (type == FLOAT) words[index] = bits;
    else shorts[index] = (uint16_t)bits;
  }
  return SUCCESS;
}

struct function {
  const char *name;
  enum type type;
  bool is_check;
};
static const struct function functions[] = {
    {"rdmaprep_fill_float", FLOAT, false},       {"rdmaprep_fill_half", HALF, false},
    {"rdmaprep_fill_bfloat16", BFLOAT16, false}, {"rdmaprep_check_float", FLOAT, true},
    {"rdmaprep_check_half", HALF, true},         {"rdmaprep_check_bfloat16", BFLOAT16, true},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

struct module {
  bool has[FUNCTIONS];
};

EXPORT CUresult cuModuleLoadData(struct module **module, const void *image) {
  STANDIN_CALL();
  NEED_CONTEXT();
  const char *text = image;
  if (strstr(text, ".version") == NULL || strstr(text, ".target") == NULL) return INVALID_PTX;
  *module = calloc(1, sizeof **module);
  for (int i = 0; i < FUNCTIONS; i++) {
    char entry[64];
    snprintf(entry, sizeof entry, ".entry %s(", functions[i].name);
    (*module)->has[i] = strstr(text, entry) != NULL;
  }
  return SUCCESS;
}

EXPORT CUresult cuModuleUnload(struct module *module) {
  STANDIN_CALL();
  NEED_CONTEXT();
  free(module);
  return SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(const struct function **function, struct module *module, const char *name) {
  STANDIN_CALL();
  NEED_CONTEXT();
  for (int i = 0; i < FUNCTIONS; i++) {
    if (!module->has[i] || strcmp(functions[i].name, name) != 0) continue;
    *function = &functions[i];
    return SUCCESS;
  }
  return NOT_FOUND;
}

EXPORT CUresult cuLaunchKernel(const struct function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                               struct stream *stream, void **parameters, void **extra) {
  STANDIN_CALL();
  NEED_CONTEXT();
  (void)shared_bytes;
  if (extra != NULL || parameters == NULL) return INVALID_VALUE;
  if (grid_x == 0 || grid_y == 0 || grid_z == 0 || grid_y > 65535 || grid_z > 65535) return INVALID_VALUE;
  if ((uint64_t)block_x * block_y * block_z == 0 || (uint64_t)block_x * block_y * block_z > 1024) return INVALID_VALUE;
  if (function < functions || function >= functions + FUNCTIONS) return 400;
  struct launch *launch = calloc(1, sizeof *launch);
  launch->type = function->type;
  launch->is_check = function->is_check;
  launch->data = *(const CUdeviceptr *)parameters[0];
  launch->count = *(const uint64_t *)parameters[1];
  if (launch->is_check) {
    launch->ranks = *(const uint32_t *)parameters[2];
    launch->seed = *(const uint64_t *)parameters[3];
    launch->result = *(const CUdeviceptr *)parameters[4];
  } else {
    launch->rank = *(const uint32_t *)parameters[2];
    launch->ranks = *(const uint32_t *)parameters[3];
    launch->seed = *(const uint64_t *)parameters[4];
  }
  return enqueue(stream, run_kernel, launch);
}

// --- For the stand-in of NCCL ----------------------------------------------------------------------------------------

// Puts a function into a stream; it takes `argument`, which free() frees afterwards. What it returns becomes the error of
// the context.
EXPORT CUresult standin_cuda_enqueue(struct stream *stream, CUresult (*function)(void *), void *argument) {
  return enqueue(stream, function, argument);
}

// The device of the calling thread's context; -1: it has none. `bus` gets its PCI bus.
EXPORT int standin_cuda_device(int *bus) {
  if (!initialized || current == NULL || current->retained == 0) return -1;
  *bus = bus_of(current->device);
  return current->device;
}

EXPORT bool standin_cuda_holds(const void *start, size_t bytes) { return holds((CUdeviceptr)start, bytes); }

EXPORT void standin_cuda_set_rank(int rank) { standin_rank = rank; }
