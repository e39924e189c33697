// Tries the stand-ins out, as the agent uses them: an all-reduce in several processes. For tests; never shipped.
//
//   all_reduce FOLDER PTX RANKS COUNT[,COUNT...] [DUMP]
//   all_reduce FOLDER verbs
//
// One process per rank opens FOLDER/libcuda.so.1 and FOLDER/libnccl.so.2, makes a communicator and, for each type and
// count, out of place and in place, fills, adds up and checks. Rank 0 writes to DUMP/TYPE.sum, rank r to DUMP/TYPE.r, what it
// has of the first count. A line per rank and step on stdout:
//
//   rank 0 float 1024 in-place wrong 0 first -1
//   rank 1 failed ncclAllReduce 3 internal error - please report this issue to the NCCL developers
//   rank 1 async 6 in float 1024 in-place        (and then an abort)
//   rank 1 stuck in ncclCommInitRank             (at the deadline, ALL_REDUCE_DEADLINE_MS, or 20 s; the rank is killed)
//   rank 1 killed by signal 11 in cuInit, or: rank 1 exited with 3 in cuInit
//
// With `verbs` it lists the RDMA devices that FOLDER/libibverbs.so.1 has: `device erdma_0 opens`, `device erdma_1: REASON`.
//
// A rank other than the first of several has an NCCL_HOSTID and shares the GPU, unless STANDIN_GPUS gives each its own.

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  char internal[128];
} ncclUniqueId;

static int rank, ranks;
// What each rank is in, for its parent.
static char (*steps)[64];

static void say(const char *format, ...) {
  char line[512];
  int used = snprintf(line, sizeof line, "rank %d ", rank);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
  va_end(arguments);
  strcat(line, "\n");
  // In one piece, since the ranks write to one pipe.
  if (write(1, line, strlen(line)) < 0) _exit(9);
}

static void *open_library(const char *folder, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  // With local symbols, as the agent opens them.
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    say("failed dlopen 1 %s", dlerror());
    _exit(1);
  }
  return library;
}

static void *cuda, *nccl;

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (found == NULL) {
    say("failed dlsym 1 %s", dlerror());
    _exit(1);
  }
  snprintf(steps[rank], sizeof steps[rank], "%s", name);
  return found;
}

static void failed(const char *name, int code) {
  const char *text = "";
  if (strncmp(name, "nccl", 4) == 0) text = ((const char *(*)(int))symbol(nccl, "ncclGetErrorString"))(code);
  else ((int (*)(int, const char **))symbol(cuda, "cuGetErrorName"))(code, &text);
  say("failed %s %d %s", name, code, text != NULL ? text : "?");
  _exit(1);
}

#define CALL(library, name, types, ...)                                                                                \
  do {                                                                                                                 \
    int code = ((int(*) types)symbol(library, #name))(__VA_ARGS__);                                                    \
    if (code != 0) failed(#name, code);                                                                                \
  } while (0)

static const struct {
  const char *name;
  int nccl;
  size_t size;
} types[] = {{"float", 7, 4}, {"half", 6, 2}, {"bfloat16", 9, 2}};

static void *stream, *comm, *module;

static void launch(const char *kernel, const char *type, void **parameters) {
  char name[64];
  void *function;
  snprintf(name, sizeof name, "rdmaprep_%s_%s", kernel, type);
  CALL(cuda, cuModuleGetFunction, (void **, void *, const char *), &function, module, name);
  CALL(cuda, cuLaunchKernel,
       (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), function,
       64, 1, 1, 256, 1, 1, 0, stream, parameters, NULL);
}

static void dump(const char *folder, const char *type, const char *suffix, uint64_t device, size_t bytes) {
  char path[4096];
  void *data = malloc(bytes);
  CALL(cuda, cuMemcpyDtoH_v2, (void *, uint64_t, size_t), data, device, bytes);
  snprintf(path, sizeof path, "%s/%s.%s", folder, type, suffix);
  FILE *file = fopen(path, "w");
  if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) say("failed fopen 1 %s", path);
  free(data);
}

// Waits for the stream with an eye on the communicator; false: it was aborted.
static bool finish(const char *type, uint64_t count, const char *placement) {
  for (;;) {
    int state = 0, code = ((int (*)(void *))symbol(cuda, "cuStreamQuery"))(stream);
    if (code == 0) return true;
    if (code != 600) failed("cuStreamQuery", code);
    CALL(nccl, ncclCommGetAsyncError, (void *, int *), comm, &state);
    if (state != 0) {
      say("async %d in %s %llu %s", state, type, (unsigned long long)count, placement);
      CALL(nccl, ncclCommAbort, (void *), comm);
      return false;
    }
    snprintf(steps[rank], sizeof steps[rank], "stream");
    usleep(100);
  }
}

static bool reduce(int type, uint64_t count, bool in_place, const char *dump_to) {
  const char *placement = in_place ? "in-place" : "out-of-place";
  uint64_t seed = 0x1234567 + count * 2 + in_place, from, to, result, found[2] = {0, ~0ull};
  size_t bytes = count * types[type].size;
  CALL(cuda, cuMemAlloc_v2, (uint64_t *, size_t), &from, bytes);
  to = from;
  if (!in_place) CALL(cuda, cuMemAlloc_v2, (uint64_t *, size_t), &to, bytes);
  CALL(cuda, cuMemAlloc_v2, (uint64_t *, size_t), &result, 16);
  CALL(cuda, cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), result, found, 16);
  if (!in_place) CALL(cuda, cuMemsetD8Async, (uint64_t, unsigned char, size_t, void *), to, 0xff, bytes, stream);
  launch("fill", types[type].name, (void *[]){&from, &count, &rank, &ranks, &seed});
  if (dump_to != NULL) {
    char suffix[16];
    snprintf(suffix, sizeof suffix, "%d", rank);
    CALL(cuda, cuStreamSynchronize, (void *), stream);
    dump(dump_to, types[type].name, suffix, from, bytes);
  }
  CALL(nccl, ncclAllReduce, (uint64_t, uint64_t, size_t, int, int, void *, void *), from, to, count, types[type].nccl, 0,
       comm, stream);
  launch("check", types[type].name, (void *[]){&to, &count, &ranks, &seed, &result});
  if (!finish(types[type].name, count, placement)) return false;
  if (dump_to != NULL && rank == 0) dump(dump_to, types[type].name, "sum", to, bytes);
  CALL(cuda, cuMemcpyDtoH_v2, (void *, uint64_t, size_t), found, result, 16);
  say("%s %llu %s wrong %llu first %lld", types[type].name, (unsigned long long)count, placement,
      (unsigned long long)found[0], (long long)found[1]);
  CALL(cuda, cuMemFree_v2, (uint64_t), from);
  if (!in_place) CALL(cuda, cuMemFree_v2, (uint64_t), to);
  CALL(cuda, cuMemFree_v2, (uint64_t), result);
  return true;
}

static char *read_file(const char *path) {
  FILE *file = fopen(path, "r");
  if (file == NULL) return NULL;
  char *text = calloc(1, 1 << 20);
  size_t length = fread(text, 1, (1 << 20) - 1, file);
  fclose(file);
  return length > 0 ? text : NULL;
}

// The whole work of a rank. The id comes from `give` of rank 0 to `take` of every rank.
static void work(char **arguments, int give, int take) {
  int gpus, device;
  void *context;
  ncclUniqueId id;
  char host_id[16];
  cuda = open_library(arguments[1], "libcuda.so.1");
  nccl = open_library(arguments[1], "libnccl.so.2");
  CALL(cuda, cuInit, (unsigned), 0);
  CALL(cuda, cuDeviceGetCount, (int *), &gpus);
  if (gpus < ranks) {
    snprintf(host_id, sizeof host_id, "host-%d", rank);
    setenv("NCCL_HOSTID", host_id, 0);
  }
  CALL(cuda, cuDeviceGet, (int *, int), &device, rank % gpus);
  CALL(cuda, cuDevicePrimaryCtxRetain, (void **, int), &context, device);
  CALL(cuda, cuCtxSetCurrent, (void *), context);
  CALL(cuda, cuStreamCreate, (void **, unsigned), &stream, 1);
  char *ptx = read_file(arguments[2]);
  CALL(cuda, cuModuleLoadData, (void **, const void *), &module, ptx != NULL ? ptx : "");
  if (rank == 0) {
    CALL(nccl, ncclGetUniqueId, (ncclUniqueId *), &id);
    for (int i = 0; i < ranks; i++) {
      if (write(give, &id, sizeof id) != sizeof id) _exit(9);
    }
  }
  snprintf(steps[rank], sizeof steps[rank], "bootstrap");
  if (read(take, &id, sizeof id) != sizeof id) {
    say("failed bootstrap 1 no unique id came");
    _exit(1);
  }
  CALL(nccl, ncclCommInitRank, (void **, int, ncclUniqueId, int), &comm, ranks, id, rank);
  bool first = true;
  for (char *counts = arguments[4]; *counts != 0;) {
    char *end;
    uint64_t count = strtoull(counts, &end, 10);
    for (int type = 0; type < 3; type++) {
      if (!reduce(type, count, false, first ? arguments[5] : NULL)) return;
      if (!reduce(type, count, true, NULL)) return;
    }
    first = false;
    counts = *end == ',' ? end + 1 : end;
  }
  CALL(nccl, ncclCommDestroy, (void *), comm);
  CALL(cuda, cuModuleUnload, (void *), module);
  CALL(cuda, cuStreamDestroy_v2, (void *), stream);
  CALL(cuda, cuDevicePrimaryCtxRelease_v2, (int), device);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  say("finished, at most %ld MiB of memory", usage.ru_maxrss / 1024);
}

static int list_verbs(const char *folder) {
  void *verbs = open_library(folder, "libibverbs.so.1");
  int count = -1;
  void **devices = ((void **(*)(int *))symbol(verbs, "ibv_get_device_list"))(&count);
  if (devices == NULL) {
    say("no list: %s", strerror(errno));
    return 1;
  }
  for (int i = 0; i < count; i++) {
    const char *name = ((const char *(*)(void *))symbol(verbs, "ibv_get_device_name"))(devices[i]);
    void *context = ((void *(*)(void *))symbol(verbs, "ibv_open_device"))(devices[i]);
    if (context == NULL) say("device %s: %s", name, strerror(errno));
    else say("device %s opens", name);
    if (context != NULL) ((int (*)(void *))symbol(verbs, "ibv_close_device"))(context);
  }
  if (devices[count] != NULL) say("the list does not end with NULL");
  ((void (*)(void **))symbol(verbs, "ibv_free_device_list"))(devices);
  return 0;
}

static long long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

int main(int count, char **arguments) {
  bool verbs = count == 3 && strcmp(arguments[2], "verbs") == 0;
  if (count < 5 && !verbs) return 2;
  ranks = verbs ? 1 : atoi(arguments[3]);
  steps = mmap(NULL, (size_t)ranks * sizeof *steps, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (verbs) return list_verbs(arguments[1]);
  int ids[2];
  pid_t *children = calloc((size_t)ranks, sizeof *children);
  if (pipe(ids) != 0) return 9;
  for (rank = 0; rank < ranks; rank++) {
    children[rank] = fork();
    if (children[rank] != 0) continue;
    char number[16];
    snprintf(number, sizeof number, "%d", rank);
    setenv("STANDIN_THIS_RANK", number, 0);
    if (rank != 0) close(ids[1]);
    work(arguments, ids[1], ids[0]);
    _exit(0);
  }
  close(ids[1]);
  const char *given = getenv("ALL_REDUCE_DEADLINE_MS");
  long long deadline = now_ms() + (given != NULL ? atoll(given) : 20000);
  bool good = true;
  for (int left = ranks; left > 0;) {
    int status;
    pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended > 0) {
      for (rank = 0; rank < ranks && children[rank] != ended;) rank++;
      children[rank] = 0;
      left--;
      good = good && status == 0;
      if (WIFSIGNALED(status)) say("killed by signal %d in %s", WTERMSIG(status), steps[rank]);
      else if (WEXITSTATUS(status) > 1) say("exited with %d in %s", WEXITSTATUS(status), steps[rank]);
      continue;
    }
    if (now_ms() < deadline) {
      usleep(2000);
      continue;
    }
    for (rank = 0; rank < ranks; rank++) {
      if (children[rank] == 0) continue;
      say("stuck in %s", steps[rank]);
      kill(children[rank], SIGKILL);
      waitpid(children[rank], &status, 0);
    }
    return 1;
  }
  return good ? 0 : 1;
}
