// Prints the sizes, offsets and numbers that src/ffi/rdma/abi.rs takes infiniband/verbs.h to have: a name, a tab and a number a
// line. The names are given as NAMES, a header that the test writes, one X(...) a line. For tests, never shipped.

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdio.h>

int main(void) {
#define X(name) printf("%s\t%lld\n", #name, (long long)(name));
#include <names.h>
  return 0;
}
