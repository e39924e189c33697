// STAND-IN for libnccl.so.2. For tests on machines without a GPU; never shipped.
//
// Ranks are processes of one machine, and they really exchange data: ncclGetUniqueId starts a thread that listens on
// loopback, the id carries its address, every rank connects, and the thread adds up what the ranks send, in the element
// type, and sends the sum back. An all-reduce runs in the order of its stream (the stand-in libcuda must be there). A rank
// that goes away makes the others fail as in NCCL: ncclRemoteError from ncclCommInitRank; later the operation does not end,
// ncclCommGetAsyncError says ncclRemoteError, and ncclCommAbort ends it.
//
// It writes a log in the dialect of NCCL 2.28, as NCCL_DEBUG and NCCL_DEBUG_FILE ask. Which transport the log names, and
// what goes wrong, is asked of the environment: README.md.

#include "elements.h"
#include "fault.h"
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <strings.h>
#include <sys/syscall.h>
#include <time.h>

typedef int ncclResult_t;
enum {
  SUCCESS = 0,
  UNHANDLED_CUDA_ERROR = 1,
  SYSTEM_ERROR = 2,
  INTERNAL_ERROR = 3,
  INVALID_ARGUMENT = 4,
  INVALID_USAGE = 5,
  REMOTE_ERROR = 6,
  IN_PROGRESS = 7,
};
enum { FLOAT16 = 6, FLOAT32 = 7, BFLOAT16 = 9, SUM = 0 };

typedef struct {
  char internal[128];
} ncclUniqueId;

// What is in a unique id.
struct address {
  char magic[16];
  uint64_t token;
  uint16_t port;  // on 127.0.0.1
};
static const char magic[16] = "stand-in of nccl";

enum { CHUNK = 1 << 20, NAME = 64 };

// A rank's first words to the thread; it answers with all of them, in the order of the ranks.
struct hello {
  uint64_t token;
  uint32_t rank, ranks;
  int32_t device, bus, process;
  char host_id[NAME];
};

// What a rank asks for afterwards; the data follows, a chunk at a time, and each chunk's sum comes back.
struct request {
  enum { ALL_REDUCE = 1, GOODBYE = 2 } what;
  int32_t type;
  uint64_t count;
};

struct comm {
  int rank, ranks, device, bus, socket;
  struct address address;
  struct hello *peers;
  char host_id[NAME];
  volatile int state;  // of the initialization, or an error that came up later
  volatile bool aborted;
  bool connected;  // the first all-reduce is done
};

// --- libcuda ---------------------------------------------------------------------------------------------------------

static struct {
  int (*enqueue)(void *stream, int (*function)(void *), void *argument);
  int (*device)(int *bus);
  bool (*holds)(const void *start, size_t bytes);
  void (*set_rank)(int rank);
  int (*alloc)(uint64_t *address, size_t bytes);
  int (*free)(uint64_t address);
  int (*driver_version)(int *version);
} cuda;

static void open_cuda(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) return;
  *(void **)&cuda.device = dlsym(library, "standin_cuda_device");
  *(void **)&cuda.holds = dlsym(library, "standin_cuda_holds");
  *(void **)&cuda.set_rank = dlsym(library, "standin_cuda_set_rank");
  *(void **)&cuda.alloc = dlsym(library, "cuMemAlloc_v2");
  *(void **)&cuda.free = dlsym(library, "cuMemFree_v2");
  *(void **)&cuda.driver_version = dlsym(library, "cuDriverGetVersion");
  *(void **)&cuda.enqueue = dlsym(library, "standin_cuda_enqueue");
}

// Is the stand-in libcuda there?
static bool have_cuda(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_cuda);
  return cuda.enqueue != NULL;
}

// --- Log -------------------------------------------------------------------------------------------------------------

enum level { NOTHING, VERSION, WARN, INFO };

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static enum level log_level;
static FILE *log_file;
static char host[256];
static char last_error[512];
static int log_device;

static void open_log(void) {
  const char *level = getenv("NCCL_DEBUG");
  log_file = stdout;
  gethostname(host, sizeof host - 1);
  host[strcspn(host, ".")] = 0;
  if (level == NULL) return;
  log_level = strcasecmp(level, "VERSION") == 0 ? VERSION
              : strcasecmp(level, "WARN") == 0  ? WARN
              : strcasecmp(level, "INFO") == 0 || strcasecmp(level, "TRACE") == 0 ? INFO : NOTHING;
  const char *pattern = getenv("NCCL_DEBUG_FILE");
  if (pattern == NULL || log_level <= VERSION) return;
  char path[4096], *to = path;
  for (; *pattern != 0 && to < path + sizeof path - 300; pattern++) {
    if (pattern[0] != '%' || pattern[1] == 0) {
      *to++ = *pattern;
      continue;
    }
    pattern++;
    if (*pattern == 'h') to += sprintf(to, "%s", host);
    else if (*pattern == 'p') to += sprintf(to, "%d", getpid());
    else if (*pattern == '%') *to++ = '%';
    else to += sprintf(to, "%%%c", *pattern);
  }
  *to = 0;
  FILE *file = fopen(path, "w");
  if (file != NULL) log_file = file;
}

static void log_line(enum level level, const char *format, va_list arguments) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_log);
  char text[1024];
  vsnprintf(text, sizeof text, format, arguments);
  pthread_mutex_lock(&log_lock);
  if (level == WARN) snprintf(last_error, sizeof last_error, "%.500s", text);
  if (level <= log_level) {
    long thread = syscall(SYS_gettid);
    if (level == VERSION) fprintf(log_file, "%s\n", text);
    else if (level == WARN)
      fprintf(log_file, "\n%s:%d:%ld [%d] standin.cc:1 NCCL WARN %s\n", host, getpid(), thread, log_device, text);
    else fprintf(log_file, "%s:%d:%ld [%d] NCCL INFO %s\n", host, getpid(), thread, log_device, text);
    fflush(log_file);
  }
  pthread_mutex_unlock(&log_lock);
}

#define LOGGER(name, level)                                                                                            \
  __attribute__((format(printf, 1, 2))) static void name(const char *format, ...) {                                    \
    va_list arguments;                                                                                                 \
    va_start(arguments, format);                                                                                       \
    log_line(level, format, arguments);                                                                                \
    va_end(arguments);                                                                                                 \
  }

LOGGER(log_version, VERSION)
LOGGER(log_warn, WARN)
LOGGER(log_info, INFO)

static int version_code(void) {
  long long version = standin_number("STANDIN_NCCL_VERSION", 22809);
  return (int)(standin_rank_is_meant() ? standin_number("STANDIN_OTHER_NCCL_VERSION", version) : version);
}

// 2.8 and older: 2804 is 2.8.4; newer: 21805 is 2.18.5.
static void version_text(char text[64]) {
  int code = version_code(), major = code < 10000 ? code / 1000 : code / 10000;
  int minor = code < 10000 ? code / 100 % 10 : code / 100 % 100, driver = 13000;
  if (have_cuda() && cuda.driver_version != NULL) cuda.driver_version(&driver);
  snprintf(text, 64, "NCCL version %d.%d.%d+cuda%d.%d", major, minor, code % 100, driver / 1000, driver / 10 % 100);
}

// --- Sockets ---------------------------------------------------------------------------------------------------------

static bool send_all(int socket, const void *data, size_t bytes) {
  for (const char *from = data; bytes > 0;) {
    ssize_t sent = send(socket, from, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    from += sent;
    bytes -= (size_t)sent;
  }
  return true;
}

static bool receive_all(int socket, void *data, size_t bytes) {
  for (char *to = data; bytes > 0;) {
    ssize_t received = recv(socket, to, bytes, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    to += received;
    bytes -= (size_t)received;
  }
  return true;
}

static void no_delay(int socket) { setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); }

// --- The thread that adds up -----------------------------------------------------------------------------------------

struct root {
  int listening;
  uint64_t token;
  uint32_t ranks, own;  // `own`: the rank of this process
  int *sockets;
  bool *gone;
};

static size_t size_of(int type) { return type == FLOAT32 ? 4 : type == FLOAT16 || type == BFLOAT16 ? 2 : 0; }

static void add(int type, void *sum, const void *other, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint16_t *half = (uint16_t *)sum + i, more = ((const uint16_t *)other)[i];
    if (type == FLOAT32) ((float *)sum)[i] += ((const float *)other)[i];
    else if (type == FLOAT16) *half = float_half(half_float(*half) + half_float(more));
    else *half = float_bfloat16(bfloat16_float(*half) + bfloat16_float(more));
  }
}

// Sends the same to every rank; to that of this process last, because with it this thread may end at any time.
static bool send_to_all(const struct root *root, const void *data, size_t bytes) {
  for (uint32_t i = 1; i <= root->ranks; i++) {
    if (!send_all(root->sockets[(root->own + i) % root->ranks], data, bytes)) return false;
  }
  return true;
}

// Waits until `rank` has sent something; false: a rank went away without a goodbye.
static bool wait_for(const struct root *root, uint32_t rank) {
  struct pollfd polls[root->ranks];
  for (uint32_t i = 0; i < root->ranks; i++) {
    short events = (short)(POLLRDHUP | (i == rank ? POLLIN : 0));
    polls[i] = (struct pollfd){root->gone[i] ? -1 : root->sockets[i], events, 0};
  }
  for (;;) {
    if (poll(polls, root->ranks, -1) < 0 && errno != EINTR) return false;
    // A goodbye may wait in the socket of one that has hung up: only where nothing is to be read it went without.
    for (uint32_t i = 0; i < root->ranks; i++) {
      char byte;
      if ((polls[i].revents & ~POLLIN) != 0 && recv(root->sockets[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) return false;
    }
    if (polls[rank].revents != 0) return true;
    // Something that will be read later keeps poll from waiting.
    usleep(200);
  }
}

static bool read_from(const struct root *root, uint32_t rank, void *data, size_t bytes) {
  return wait_for(root, rank) && receive_all(root->sockets[rank], data, bytes);
}

// Serves one request of every rank; false: that was the last.
static bool serve(struct root *root, char *sum, char *chunk) {
  struct request first = {0}, request;
  uint32_t gone = 0;
  for (uint32_t rank = 0; rank < root->ranks; rank++) {
    if (root->gone[rank]) return false;
    if (!read_from(root, rank, &request, sizeof request)) return false;
    if (rank == 0) first = request;
    if (request.what == GOODBYE) {
      root->gone[rank] = true;
      gone++;
    } else if (gone > 0 || memcmp(&request, &first, sizeof request) != 0) {
      return false;
    }
  }
  if (gone > 0) return false;
  size_t size = size_of(first.type), step = CHUNK / size;
  for (uint64_t left = first.count; left > 0;) {
    size_t count = left < step ? left : step;
    for (uint32_t rank = 0; rank < root->ranks; rank++) {
      if (!read_from(root, rank, rank == 0 ? sum : chunk, count * size)) return false;
      if (rank > 0) add(first.type, sum, chunk, count);
    }
    if (!send_to_all(root, sum, count * size)) return false;
    left -= count;
  }
  return true;
}

// Lets the ranks come together; false: one went away first, or they do not fit together.
static bool gather(struct root *root) {
  struct hello *hellos = NULL, hello;
  for (uint32_t present = 0; root->ranks == 0 || present < root->ranks; present++) {
    int socket = accept4(root->listening, NULL, NULL, SOCK_CLOEXEC);
    if (socket < 0) return false;
    no_delay(socket);
    if (!receive_all(socket, &hello, sizeof hello) || hello.token != root->token || hello.ranks == 0) {
      close(socket);
      present--;
      continue;
    }
    if (root->ranks == 0) {
      root->ranks = hello.ranks;
      root->sockets = malloc(hello.ranks * sizeof *root->sockets);
      memset(root->sockets, -1, hello.ranks * sizeof *root->sockets);
      root->gone = calloc(hello.ranks, sizeof *root->gone);
      hellos = calloc(hello.ranks, sizeof *hellos);
    }
    if (hello.ranks != root->ranks || hello.rank >= root->ranks || root->sockets[hello.rank] >= 0) {
      close(socket);
      free(hellos);
      return false;
    }
    root->sockets[hello.rank] = socket;
    hellos[hello.rank] = hello;
    if (hello.process == getpid()) root->own = hello.rank;
  }
  bool sent = send_to_all(root, hellos, root->ranks * sizeof *hellos);
  free(hellos);
  return sent;
}

static void *root_thread(void *argument) {
  struct root *root = argument;
  char *sum = malloc(CHUNK), *chunk = malloc(CHUNK);
  if (gather(root)) {
    while (serve(root, sum, chunk)) continue;
  }
  // Who still waits for something sees the end of its connection.
  for (uint32_t rank = 0; rank < root->ranks; rank++) {
    if (root->sockets[rank] >= 0) close(root->sockets[rank]);
  }
  close(root->listening);
  free(sum);
  free(chunk);
  return NULL;
}

// --- Ids and versions ------------------------------------------------------------------------------------------------

EXPORT ncclResult_t ncclGetVersion(int *version) {
  STANDIN_CALL();
  if (version == NULL) return INVALID_ARGUMENT;
  *version = version_code();
  return SUCCESS;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  STANDIN_CALL();
  if (id == NULL) return INVALID_ARGUMENT;
  struct root *root = calloc(1, sizeof *root);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof at;
  root->listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (root->listening < 0 || bind(root->listening, (struct sockaddr *)&at, length) != 0 ||
      listen(root->listening, 4096) != 0 || getsockname(root->listening, (struct sockaddr *)&at, &length) != 0) {
    log_warn("Call to bind failed: %s", strerror(errno));
    return SYSTEM_ERROR;
  }
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  root->token = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec << 16 ^ (uint64_t)getpid();
  struct address address = {.token = root->token, .port = ntohs(at.sin_port)};
  memcpy(address.magic, magic, sizeof magic);
  memset(id, 0, sizeof *id);
  memcpy(id, &address, sizeof address);
  pthread_t thread;
  if (pthread_create(&thread, NULL, root_thread, root) != 0) return SYSTEM_ERROR;
  pthread_detach(thread);
  return SUCCESS;
}

static const char *error_text(ncclResult_t code) {
  static const char *const texts[] = {
      "no error",
      "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      "internal error - please report this issue to the NCCL developers",
      "invalid argument (run with NCCL_DEBUG=WARN for details)",
      "invalid usage (run with NCCL_DEBUG=WARN for details)",
      "remote process exited or there was a network error",
      "NCCL operation in progress",
  };
  return code >= 0 && code < (int)(sizeof texts / sizeof *texts) ? texts[code] : "unknown result code";
}

EXPORT const char *ncclGetErrorString(ncclResult_t code) { return error_text(code); }

EXPORT const char *ncclGetLastError(const struct comm *comm) {
  (void)comm;
  return last_error;
}

// --- Networks and channels, in the log -------------------------------------------------------------------------------

static bool set(const char *variable) { return standin_number(variable, 0) != 0; }

// The network that NCCL would choose: STANDIN_NET, else InfiniBand where STANDIN_VERBS has a device that opens.
static const char *network(void) {
  const char *given = getenv("STANDIN_NET"), *forced = getenv("STANDIN_TRANSPORT"), *verbs = getenv("STANDIN_VERBS");
  if (forced != NULL && (strcmp(forced, "socket") == 0 || strncmp(forced, "ib", 2) == 0)) return forced;
  if (set("NCCL_IB_DISABLE")) return "socket";
  if (given != NULL) return given;
  for (const char *entry = verbs; entry != NULL && *entry != 0;) {
    size_t length = strcspn(entry, ",");
    if (memchr(entry, '!', length) == NULL) return "ib";
    entry += length;
    if (*entry == ',') entry++;
  }
  return "socket";
}

// The first interface that is up and not loopback, else loopback, as `eth0:192.0.2.2<0>`.
static void interface(char text[128]) {
  struct ifaddrs *all = NULL;
  snprintf(text, 128, "lo:127.0.0.1<0>");
  if (getifaddrs(&all) != 0) return;
  for (struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
    if (one->ifa_addr == NULL || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    char address[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &((struct sockaddr_in *)one->ifa_addr)->sin_addr, address, sizeof address);
    snprintf(text, 128, "%.60s:%s<0>", one->ifa_name, address);
    break;
  }
  freeifaddrs(all);
}

// The RDMA devices as `[0]erdma_0:1/RoCE [1]…`: those of STANDIN_VERBS that open, or one of that name.
static void rdma_devices(char *text, size_t size) {
  const char *entry = getenv("STANDIN_VERBS");
  size_t used = 0;
  int found = 0;
  *text = 0;
  while (entry != NULL && *entry != 0) {
    size_t length = strcspn(entry, ",");
    if (memchr(entry, '!', length) == NULL && used + length + 32 < size)
      used += (size_t)snprintf(text + used, size - used, "[%d]%.*s:1/RoCE ", found++, (int)length, entry);
    entry += length;
    if (*entry == ',') entry++;
  }
  if (found == 0) snprintf(text, size, "[0]erdma_0:1/RoCE ");
}

static void log_networks(void) {
  char interface_text[128], devices[1024];
  interface(interface_text);
  log_info("NET/Plugin: Could not find: libnccl-net.so");
  if (strncmp(network(), "ib", 2) == 0) {
    rdma_devices(devices, sizeof devices);
    log_info("NET/IB : Using %s[RO]; OOB %s", devices, interface_text);
    log_info("Initialized NET plugin IB");
    log_info("Assigned NET plugin IB to comm");
    log_info("Using network IB");
    return;
  }
  if (set("NCCL_IB_DISABLE")) log_info("NCCL_IB_DISABLE set by environment to 1.");
  else log_info("NET/IB : No device found.");
  log_info("NET/IB : Using [RO]; OOB %s", interface_text);
  log_info("Failed to initialize NET plugin IB");
  log_info("NET/Socket : Using [0]%s", interface_text);
  log_info("Initialized NET plugin Socket");
  log_info("Assigned NET plugin Socket to comm");
  log_info("Using network Socket");
}

// A connection from one rank to another, as the rank `self` logs it: the receiver and the sender for a network, the
// sender alone for the rest.
static void log_channel(const struct comm *comm, int channel, int from, int to) {
  const struct hello *sender = &comm->peers[from], *receiver = &comm->peers[to];
  const char *transport = getenv("STANDIN_TRANSPORT");
  bool same_host = strcmp(sender->host_id, receiver->host_id) == 0;
  if (transport == NULL) {
    transport = !same_host                 ? network()
                : !set("NCCL_P2P_DISABLE") ? "p2p"
                : !set("NCCL_SHM_DISABLE") ? "shm" : network();
  }
  bool local = strcmp(transport, "p2p") == 0 || strcmp(transport, "shm") == 0;
  if (local && comm->rank != from) return;
  char pair[96];
  snprintf(pair, sizeof pair, "%d[%d] -> %d[%d]", from, sender->device, to, receiver->device);
  if (local) {
    log_info("Channel %02d/0 : %s via %s", channel, pair, strcmp(transport, "p2p") == 0 ? "P2P/CUMEM" : "SHM/direct/direct");
    return;
  }
  log_info("Channel %02d/0 : %s [%s] via NET/%s", channel, pair, comm->rank == to ? "receive" : "send",
           strcmp(transport, "ib-gdr") == 0 ? "IB/0/GDRDMA" : strcmp(transport, "ib") == 0 ? "IB/0" : "Socket/0");
}

static void log_connections(const struct comm *comm) {
  int next = (comm->rank + 1) % comm->ranks, previous = (comm->rank + comm->ranks - 1) % comm->ranks;
  for (int channel = 0; comm->ranks > 1 && channel < 2; channel++) log_channel(comm, channel, previous, comm->rank);
  for (int channel = 0; comm->ranks > 1 && channel < 2; channel++) log_channel(comm, channel, comm->rank, next);
  log_info("Connected all rings, use ring PXN 0 GDR %d", strcmp(network(), "ib-gdr") == 0);
}

// --- Communicators ---------------------------------------------------------------------------------------------------

// As ncclConfig_t begins.
struct config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

static ncclResult_t connect_to_root(struct comm *comm) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(comm->address.port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  comm->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (comm->socket < 0) return SYSTEM_ERROR;
  if (connect(comm->socket, (struct sockaddr *)&at, sizeof at) != 0) {
    log_warn("socketPollConnect: connect to 127.0.0.1<%d> returned %s", comm->address.port, strerror(errno));
    return REMOTE_ERROR;
  }
  no_delay(comm->socket);
  struct hello hello = {comm->address.token, (uint32_t)comm->rank, (uint32_t)comm->ranks,
                        comm->device, comm->bus, getpid(), ""};
  memcpy(hello.host_id, comm->host_id, NAME);
  comm->peers = calloc((size_t)comm->ranks, sizeof *comm->peers);
  if (!send_all(comm->socket, &hello, sizeof hello) ||
      !receive_all(comm->socket, comm->peers, (size_t)comm->ranks * sizeof *comm->peers)) {
    log_warn("socketProgress: Connection closed by remote peer 127.0.0.1<%d>", comm->address.port);
    return REMOTE_ERROR;
  }
  return SUCCESS;
}

static void log_hosts(const struct comm *comm) {
  int hosts = 0, local = 0, local_rank = 0;
  for (int i = 0; i < comm->ranks; i++) {
    bool first = true;
    for (int j = 0; j < i; j++) first = first && strcmp(comm->peers[i].host_id, comm->peers[j].host_id) != 0;
    hosts += first;
    if (strcmp(comm->peers[i].host_id, comm->host_id) != 0) continue;
    local++;
    local_rank += i < comm->rank;
  }
  log_info("comm %p rank %d nRanks %d nNodes %d localRanks %d localRank %d MNNVL 0", (void *)comm, comm->rank,
           comm->ranks, hosts, local, local_rank);
}

static ncclResult_t initialize(struct comm *comm) {
  struct timespec start, end;
  char interface_text[128], version[64];
  int driver = 0;
  clock_gettime(CLOCK_MONOTONIC, &start);
  interface(interface_text);
  version_text(version);
  cuda.driver_version(&driver);
  log_info("ENV/Plugin: Could not find: libnccl-env.so");
  log_info("Bootstrap: Using %s", interface_text);
  log_info("cudaDriverVersion %d", driver);
  if (log_level == INFO) log_info("%s", version);
  else if (comm->rank == 0) log_version("%s", version);
  log_info("Comm config Blocking set to 1");
  log_networks();
  const char *warning = getenv("STANDIN_WARN");
  if (warning != NULL && standin_rank_is_meant()) log_warn("%s", warning);
  log_info("ncclCommInitRankConfig comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %x commId 0x%llx - Init START",
           (void *)comm, comm->rank, comm->ranks, comm->device, comm->device, comm->bus << 4,
           (unsigned long long)comm->address.token);
  if (getenv("NCCL_HOSTID") != NULL) log_info("NCCL_HOSTID set by environment to %s", comm->host_id);
  ncclResult_t result = connect_to_root(comm);
  if (result != SUCCESS) return result;
  // Real NCCL refuses two ranks of one host on one GPU.
  for (int i = 0; i < comm->ranks; i++) {
    const struct hello *one = &comm->peers[i];
    if (i == comm->rank || one->bus != comm->bus || strcmp(one->host_id, comm->host_id) != 0) continue;
    log_warn("Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", comm->rank, i, comm->bus << 4);
    return INVALID_USAGE;
  }
  log_hosts(comm);
  for (int channel = 0; channel < 2; channel++) {
    char ring[1024];
    int used = 0;
    for (int rank = 0; rank < comm->ranks && used < (int)sizeof ring - 16; rank++) used += sprintf(ring + used, " %d", rank);
    log_info("Channel %02d/02 :%s", channel, comm->ranks > 0 ? ring : "");
  }
  log_info("2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer");
  log_info("ncclCommInitRankConfig comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %x commId 0x%llx - Init COMPLETE",
           (void *)comm, comm->rank, comm->ranks, comm->device, comm->device, comm->bus << 4,
           (unsigned long long)comm->address.token);
  clock_gettime(CLOCK_MONOTONIC, &end);
  log_info("Init timings - ncclCommInitRankConfig: rank %d nranks %d total %.2f", comm->rank, comm->ranks,
           (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
  return SUCCESS;
}

static void *initialize_in_background(void *argument) {
  struct comm *comm = argument;
  comm->state = initialize(comm);
  return NULL;
}

static volatile int group_depth;

static ncclResult_t init_rank(struct comm **result, int ranks, ncclUniqueId id, int rank, const struct config *config) {
  struct address address;
  memcpy(&address, &id, sizeof address);
  if (result == NULL || ranks < 1 || rank < 0 || rank >= ranks) {
    log_warn("Invalid rank requested : %d/%d", rank, ranks);
    return INVALID_ARGUMENT;
  }
  if (memcmp(address.magic, magic, sizeof magic) != 0) {
    log_warn("the unique id is not one of ncclGetUniqueId");
    return INVALID_ARGUMENT;
  }
  if (config != NULL && config->magic != 0xcafebeef) {
    log_warn("ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    return INVALID_ARGUMENT;
  }
  if (group_depth > 0) {
    log_warn("the stand-in does not set up communicators within a group");
    return INVALID_USAGE;
  }
  if (!have_cuda()) {
    log_warn("Cuda failure 'the stand-in of libcuda is not there'");
    return UNHANDLED_CUDA_ERROR;
  }
  struct comm *comm = calloc(1, sizeof *comm);
  comm->rank = standin_rank = rank;
  cuda.set_rank(rank);
  comm->ranks = ranks;
  comm->address = address;
  comm->device = log_device = cuda.device(&comm->bus);
  if (comm->device < 0) {
    log_device = 0;
    log_warn("Cuda failure 'invalid device context'");
    free(comm);
    return UNHANDLED_CUDA_ERROR;
  }
  const char *host_id = getenv("NCCL_HOSTID");
  snprintf(comm->host_id, NAME, "%s", host_id != NULL ? host_id : "");
  *result = comm;
  if (config != NULL && config->blocking == 0) {
    comm->state = IN_PROGRESS;
    pthread_t thread;
    if (pthread_create(&thread, NULL, initialize_in_background, comm) != 0) return SYSTEM_ERROR;
    pthread_detach(thread);
    return IN_PROGRESS;
  }
  comm->state = initialize(comm);
  if (comm->state == SUCCESS) return SUCCESS;
  // Kept in memory, but not given to the caller.
  *result = NULL;
  return comm->state;
}

// The faults of these two may be for one rank, which the process may get to know by this call only.
EXPORT ncclResult_t ncclCommInitRank(struct comm **comm, int ranks, ncclUniqueId id, int rank) {
  standin_rank = rank;
  STANDIN_CALL();
  return init_rank(comm, ranks, id, rank, NULL);
}

EXPORT ncclResult_t ncclCommInitRankConfig(struct comm **comm, int ranks, ncclUniqueId id, int rank, struct config *config) {
  standin_rank = rank;
  STANDIN_CALL();
  return init_rank(comm, ranks, id, rank, config);
}

EXPORT ncclResult_t ncclCommCount(const struct comm *comm, int *count) {
  STANDIN_CALL();
  if (comm == NULL || count == NULL) return INVALID_ARGUMENT;
  *count = comm->ranks;
  return SUCCESS;
}

// STANDIN_ASYNC=CODE[@CALL]: from that call on (else from the first) the answer is CODE.
EXPORT ncclResult_t ncclCommGetAsyncError(struct comm *comm, ncclResult_t *state) {
  STANDIN_CALL();
  static unsigned calls;
  if (comm == NULL || state == NULL) return INVALID_ARGUMENT;
  const char *planted = getenv("STANDIN_ASYNC"), *at = planted != NULL ? strchr(planted, '@') : NULL;
  unsigned long first = at != NULL ? strtoul(at + 1, NULL, 10) : 1;
  if (planted != NULL && ++calls >= first && standin_rank_is_meant()) comm->state = atoi(planted);
  *state = comm->state;
  return SUCCESS;
}

EXPORT ncclResult_t ncclCommFinalize(struct comm *comm) {
  STANDIN_CALL();
  return comm == NULL ? INVALID_ARGUMENT : SUCCESS;
}

// The memory stays: an operation may still be under way.
static void leave(struct comm *comm) {
  comm->aborted = true;
  if (comm->socket > 0) shutdown(comm->socket, SHUT_RDWR);
}

EXPORT ncclResult_t ncclCommDestroy(struct comm *comm) {
  STANDIN_CALL();
  if (comm == NULL) return SUCCESS;
  if (comm->state == SUCCESS) send_all(comm->socket, &(struct request){.what = GOODBYE}, sizeof(struct request));
  leave(comm);
  log_info("comm %p rank %d nranks %d cudaDev %d busId %x - Destroy COMPLETE", (void *)comm, comm->rank, comm->ranks,
           comm->device, comm->bus << 4);
  return SUCCESS;
}

EXPORT ncclResult_t ncclCommAbort(struct comm *comm) {
  STANDIN_CALL();
  if (comm == NULL) return SUCCESS;
  log_info("comm %p rank %d nRanks %d cudaDev %d busId %x - Abort START", (void *)comm, comm->rank, comm->ranks,
           comm->device, comm->bus << 4);
  leave(comm);
  log_info("comm %p rank %d nranks %d cudaDev %d busId %x - Abort COMPLETE", (void *)comm, comm->rank, comm->ranks,
           comm->device, comm->bus << 4);
  return SUCCESS;
}

EXPORT ncclResult_t ncclGroupStart(void) {
  STANDIN_CALL();
  group_depth++;
  return SUCCESS;
}

EXPORT ncclResult_t ncclGroupEnd(void) {
  STANDIN_CALL();
  if (group_depth == 0) return INVALID_USAGE;
  group_depth--;
  return SUCCESS;
}

// --- Memory ----------------------------------------------------------------------------------------------------------

EXPORT ncclResult_t ncclMemAlloc(void **address, size_t bytes) {
  STANDIN_CALL();
  uint64_t memory;
  if (address == NULL) return INVALID_ARGUMENT;
  if (!have_cuda() || cuda.alloc(&memory, bytes) != 0) return UNHANDLED_CUDA_ERROR;
  *address = (void *)memory;
  return SUCCESS;
}

EXPORT ncclResult_t ncclMemFree(void *address) {
  STANDIN_CALL();
  return have_cuda() && cuda.free((uint64_t)address) == 0 ? SUCCESS : UNHANDLED_CUDA_ERROR;
}

// --- The all-reduce --------------------------------------------------------------------------------------------------

struct all_reduce {
  struct comm *comm;
  const char *from;
  char *to;
  size_t count;
  int type;
  unsigned number;  // among the all-reduces of this process, from 1
};

// STANDIN_WRONG: `element=5,bytes=1048576,placement=in-place,type=float`; what is not named may be any.
static void spoil(const struct all_reduce *what) {
  const char *wrong = getenv("STANDIN_WRONG");
  if (wrong == NULL || !standin_rank_is_meant()) return;
  unsigned long long element = 0, bytes = what->count * size_of(what->type);
  bool in_place = what->from == what->to;
  const char *type = what->type == FLOAT32 ? "float" : what->type == FLOAT16 ? "half" : "bfloat16";
  while (*wrong != 0) {
    size_t length = strcspn(wrong, ",");
    char entry[64], text[48];
    snprintf(entry, sizeof entry, "%.*s", (int)length, wrong);
    unsigned long long number;
    if (sscanf(entry, "element=%llu", &number) == 1) element = number;
    else if (sscanf(entry, "bytes=%llu", &number) == 1 && number != bytes) return;
    else if (sscanf(entry, "placement=%47s", text) == 1 && (strcmp(text, "in-place") == 0) != in_place) return;
    else if (sscanf(entry, "type=%47s", text) == 1 && strcmp(text, type) != 0) return;
    wrong += length;
    if (*wrong == ',') wrong++;
  }
  // The lowest bit of the fraction.
  if (element < what->count) what->to[element * size_of(what->type)] ^= 1;
}

// The operation can not end: the other side is gone. As in NCCL, only an abort ends it.
static int remote_error(struct comm *comm) {
  if (!comm->aborted) {
    log_warn("socketProgress: Connection closed by remote peer 127.0.0.1<%d>", comm->address.port);
    if (comm->state == SUCCESS) comm->state = REMOTE_ERROR;
  }
  while (!comm->aborted) usleep(1000);
  return 0;
}

static int run_all_reduce(void *argument) {
  struct all_reduce *what = argument;
  struct comm *comm = what->comm;
  int code;
  if (standin_fault("stream", what->number, &comm->aborted, &code)) return code;
  if (standin_rank_is_meant()) usleep((unsigned)standin_number("STANDIN_SLOW_US", 0));
  if (comm->aborted) return 0;
  struct request request = {ALL_REDUCE, what->type, what->count};
  if (!send_all(comm->socket, &request, sizeof request)) return remote_error(comm);
  size_t size = size_of(what->type), bytes = what->count * size;
  if (!cuda.holds(what->from, bytes) || !cuda.holds(what->to, bytes)) return 700;
  for (size_t done = 0; done < bytes;) {
    size_t step = bytes - done < CHUNK ? bytes - done : CHUNK;
    if (!send_all(comm->socket, what->from + done, step)) return remote_error(comm);
    if (!receive_all(comm->socket, what->to + done, step)) return remote_error(comm);
    done += step;
  }
  if (!comm->connected) log_connections(comm);
  comm->connected = true;
  spoil(what);
  return 0;
}

EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, struct comm *comm,
                                  void *stream) {
  STANDIN_CALL();
  static unsigned number;
  if (comm == NULL) {
    log_warn("AllReduce : comm argument is NULL");
    return INVALID_ARGUMENT;
  }
  if (comm->state == IN_PROGRESS || comm->aborted) return INVALID_USAGE;
  if (comm->state != SUCCESS) return comm->state;
  if (size_of(type) == 0 || operation != SUM) {
    log_warn("AllReduce : invalid type %d or operation %d (the stand-in knows 6, 7, 9 and 0)", type, operation);
    return INVALID_ARGUMENT;
  }
  if (!cuda.holds(from, count * size_of(type)) || !cuda.holds(to, count * size_of(type))) {
    log_warn("AllReduce : a buffer is not a valid pointer");
    return INVALID_ARGUMENT;
  }
  struct all_reduce *what = malloc(sizeof *what);
  *what = (struct all_reduce){comm, from, to, count, type, __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED)};
  return cuda.enqueue(stream, run_all_reduce, what) == 0 ? SUCCESS : UNHANDLED_CUDA_ERROR;
}
