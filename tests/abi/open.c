// Opens a libnccl, asks for its version and looks for symbols. For tests; never shipped.
//
//   open LIBNCCL SYMBOL...     prints `version 22105`, and `missing SYMBOL` for each that is not there
//
// It ends without closing the library: NCCL does not survive that.

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **arguments) {
  if (count < 2) return 2;
  void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  int version = 0;
  int (*get_version)(int *) = (int (*)(int *))dlsym(library, "ncclGetVersion");
  if (get_version == NULL || get_version(&version) != 0) return 1;
  printf("version %d\n", version);
  for (int i = 2; i < count; i++) {
    if (dlsym(library, arguments[i]) == NULL) printf("missing %s\n", arguments[i]);
  }
  fflush(stdout);
  _exit(0);
}
