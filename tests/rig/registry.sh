#!/usr/bin/env bash
# registry.sh PORT DIR - runs a registry on 127.0.0.1:PORT that keeps everything
# in DIR and lets in the user ci with the password $RDMAPREP_REGISTRY_PASSWORD.
# It stays in the foreground, its log on standard error, until it is ended.
set -euo pipefail

[[ $# -eq 2 ]] || { echo "usage: registry.sh PORT DIR" >&2; exit 2; }
port=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)

umask 077
# The password goes in by standard input: an argument shows in the process list.
htpasswd -niB ci <<<"${RDMAPREP_REGISTRY_PASSWORD:?is not set}" >"$dir/htpasswd"
unset RDMAPREP_REGISTRY_PASSWORD
cat >"$dir/config.yml" <<END
version: 0.1
storage:
  filesystem:
    rootdirectory: "$dir/data"
  delete:
    enabled: true
auth:
  htpasswd:
    realm: rdmaprep-test
    path: "$dir/htpasswd"
http:
  addr: 127.0.0.1:$port
END
# The lines about requests come on standard output.
exec docker-registry serve "$dir/config.yml" >&2
