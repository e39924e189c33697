#!/bin/sh
# pair.sh COMMAND... - the entrypoint of a comparison: all_reduce_perf and COMMAND (the agent) one after the other in one
# container. PAIR_FIRST says which comes first (agent or nccl-tests), PAIR_COMMAND is the whole all_reduce_perf line; its
# output goes to /out/nccl-tests.txt.
nccl_tests() {
  # The log would stand between the rows of the table.
  (unset NCCL_DEBUG; eval "$PAIR_COMMAND") >/out/nccl-tests.txt 2>&1
}
if [ "$PAIR_FIRST" = agent ]; then
  "$@"
  code=$?
  nccl_tests
  exit "$code"
fi
nccl_tests
exec "$@"
