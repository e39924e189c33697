// Part of the STAND-INS for libcuda, libnccl and libibverbs that the tests load instead of the real ones. Never shipped.
//
// Faults on demand: every function of a stand-in asks here, by its name, whether it is to fail, hang, crash or eat memory.
// The environment decides (README.md lists the variables). STANDIN_RANK names the ranks that are concerned.

#ifndef STANDIN_FAULT_H
#define STANDIN_FAULT_H

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

// The stand-ins are built on a newer system than some that they are loaded on: these symbols moved into libc.so.6 with
// glibc 2.34 and got a new version there; under the old one both kinds of system have them. build.sh asks for
// libpthread.so.0 and libdl.so.2, where an old system has them.
#if defined(__x86_64__) && defined(__GLIBC__)
__asm__(".symver pthread_create,pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_detach,pthread_detach@GLIBC_2.2.5");
__asm__(".symver pthread_once,pthread_once@GLIBC_2.2.5");
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#endif

// The rank of this process; -1: not known (yet).
static int standin_rank = -1;

// The number of a name like `--rank=1`, of which `before` is `--rank=`; -1: it is none.
static int standin_number_after(const char *name, const char *before) {
  size_t length = strlen(before);
  return strncmp(name, before, length) == 0 && name[length] >= '0' && name[length] <= '9' ? atoi(name + length) : -1;
}

// The rank as the environment or the command line has it: STANDIN_THIS_RANK=1, the agent's NCCL_DEBUG_FILE=…/nccl-1.log,
// `--rank 1`, `--rank=1` or `rank 1`.
__attribute__((constructor)) static void standin_find_rank(void) {
  const char *given = getenv("STANDIN_THIS_RANK"), *log = getenv("NCCL_DEBUG_FILE");
  if (given != NULL && *given != 0) standin_rank = atoi(given);
  if (standin_rank < 0 && log != NULL) {
    const char *slash = strrchr(log, '/');
    standin_rank = standin_number_after(slash != NULL ? slash + 1 : log, "nccl-");
  }
  char text[4096];
  int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return;
  text[length] = 0;
  bool named = false;
  for (char *word = text; word < text + length && standin_rank < 0; word += strlen(word) + 1) {
    standin_rank = standin_number_after(word, named ? "" : "--rank=");
    named = strcmp(word, "--rank") == 0 || strcmp(word, "rank") == 0;
  }
}

// Is this process of a rank that STANDIN_RANK (`1` or `0,3`; not set: all) names?
static bool standin_rank_is_meant(void) {
  const char *ranks = getenv("STANDIN_RANK");
  if (ranks == NULL || *ranks == 0) return true;
  while (*ranks != 0) {
    char *end;
    long rank = strtol(ranks, &end, 10);
    if (end == ranks) return false;
    if (rank == standin_rank) return true;
    ranks = *end == ',' ? end + 1 : end;
  }
  return false;
}

// Looks for `name` in VARIABLE, a list of `NAME[:VALUE][@CALL]` with commas between: is call number `call` (from 1) of it
// meant? Then `value` gets the text after the colon, or "".
static bool standin_named(const char *variable, const char *name, unsigned call, char value[32]) {
  const char *list = getenv(variable);
  if (list == NULL || !standin_rank_is_meant()) return false;
  size_t length = strlen(name);
  for (const char *entry = list; *entry != 0;) {
    size_t size = strcspn(entry, ",");
    if (strncmp(entry, name, length) == 0 && (length == size || entry[length] == ':' || entry[length] == '@')) {
      char rest[64];
      snprintf(rest, sizeof rest, "%.*s", (int)(size - length), entry + length);
      char *at = strchr(rest, '@');
      if (at != NULL) *at = 0;
      if (at == NULL || strtoul(at + 1, NULL, 10) == call) {
        snprintf(value, 32, "%.31s", rest[0] == ':' ? rest + 1 : "");
        return true;
      }
    }
    entry += size;
    if (*entry == ',') entry++;
  }
  return false;
}

static void standin_crash(const char *how) {
  if (strncmp(how, "EXIT", 4) == 0) _exit(how[4] == '=' ? atoi(how + 5) : 1);
  if (strcmp(how, "ABRT") == 0) abort();
  if (strcmp(how, "KILL") == 0) raise(SIGKILL);
  // A real access: a handler that returns, as Rust's does, comes back to it.
  volatile char *volatile nowhere = NULL;
  *nowhere = 0;
}

// Takes so many MiB for good, a MiB at a time, each page written to.
static void standin_eat(const char *mib) {
  for (unsigned long left = *mib != 0 ? strtoul(mib, NULL, 10) : 1024; left > 0; left--) {
    char *block = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return;
    memset(block, 1, 1 << 20);
  }
}

// What is asked of call number `call` of `name`: eats memory, crashes, or hangs for as long as *give_up is false (NULL: for
// ever). True: the function is to return *code.
static bool standin_fault(const char *name, unsigned call, const volatile bool *give_up, int *code) {
  char value[32];
  if (standin_named("STANDIN_EAT_MIB", name, call, value)) standin_eat(value);
  if (standin_named("STANDIN_CRASH", name, call, value)) standin_crash(value);
  if (standin_named("STANDIN_HANG", name, call, value)) {
    while (give_up == NULL || !*give_up) usleep(1000);
  }
  if (!standin_named("STANDIN_FAIL", name, call, value)) return false;
  *code = atoi(value);
  return true;
}

// First line of a function that returns a code.
#define STANDIN_CALL()                                                                                                  \
  do {                                                                                                                  \
    static unsigned standin_calls;                                                                                      \
    int standin_code;                                                                                                   \
    unsigned standin_number = __atomic_add_fetch(&standin_calls, 1, __ATOMIC_RELAXED);                                  \
    if (standin_fault(__func__, standin_number, NULL, &standin_code)) return standin_code;                              \
  } while (0)

static inline long long standin_number(const char *variable, long long otherwise) {
  const char *text = getenv(variable);
  return text != NULL && *text != 0 ? strtoll(text, NULL, 10) : otherwise;
}

#endif
