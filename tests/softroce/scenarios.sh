# shellcheck shell=dash
# What tests/softroce.rs has the guest do: one thing after the other is broken and mended, and `rdmaprep devices --loopback` run each
# time. Each scenario begins with a line `== NAME`; its last line is the exit status. Times are of the guest's clock.
scenario() {
  name=$1
  shift
  read -r start _ </proc/uptime
  echo "== $name"
  "$@"
  echo "exit $?"
  read -r end _ </proc/uptime
  echo "$name: $start to $end s" >/dev/ttyS0
}
loopback() { timeout 60 /rdmaprep devices --loopback --format json "$@"; }
small() { loopback --sizes 65536 "$@"; }
becomes() { # FILE TEXT: waits until the file has the text
  for _ in $(seq 100); do
    if grep -qs "$2" "$1"; then return; fi
    sleep 0.1
  done
  echo "$1 did not become $2"
}
# The interface is up, and the kernel is sure that nobody else has its IPv6 address: until then that is no address to connect to.
up() {
  ip link set v0 up
  becomes $port/state ACTIVE
  while ip -6 addr show dev v0 | grep -q tentative; do sleep 0.1; done
}
port=/sys/class/infiniband/rxe_0/ports/1

gid_tables() {
  for file in /sys/class/infiniband/rxe_*/ports/1/gids/*; do
    folder=${file%/gids/*}
    device=${file#/sys/class/infiniband/}
    # An empty slot has no type: reading it is an error.
    if type=$(cat "$folder/gid_attrs/types/${file##*/}" 2>/dev/null); then
      echo "${device%%/*} ${file##*/} $(cat "$file") $type"
    fi
  done | sort -k1,1 -k2,2n
}
scenario devinfo ibv_devinfo -v
scenario devices /rdmaprep devices --format json
scenario gids gid_tables
scenario as-it-is loopback rxe_0
scenario both small
scenario planted small rxe_0 --plant-wrong 20
scenario no-such-device small mlx5_0

ip link set v0 down
becomes $port/state DOWN
scenario port-down small
up

ip addr del 10.9.0.1/24 dev v0
becomes $port/gids/1 0000:0000:0000:0000:0000:0000:0000:0000
scenario no-address small rxe_0
scenario asked-slot-empty small rxe_0 --gid-index 1
ip addr add 10.9.0.1/24 dev v0
becomes $port/gids/1 ffff:0a09:0001

scenario wrong-gid-index small rxe_0 --gid-index 5
scenario gid-index-beyond-table small rxe_0 --gid-index 5000
scenario link-local small rxe_0 --gid-index 0

ip link set v0 mtu 9000
ip link set peer0 mtu 9000
scenario large-mtu small rxe_0
ip link set v0 mtu 1500
ip link set peer0 mtu 1500

# The port goes down while data is under way.
down_while_busy() {
  before=$(cat $port/hw_counters/sent_pkts)
  loopback rxe_0 &
  until [ "$(cat $port/hw_counters/sent_pkts)" -gt "$((before + 2000))" ]; do sleep 0.01; done
  ip link set v0 down
  wait $!
}
scenario down-while-busy down_while_busy
up
becomes $port/gids/1 ffff:0a09:0001

mv /dev/infiniband/uverbs0 /dev/infiniband/away
scenario node-missing small
mv /dev/infiniband/away /dev/infiniband/uverbs0
chmod 600 /dev/infiniband/uverbs0
scenario node-refused su nobody -c '/rdmaprep devices --loopback --format json --sizes 65536'
chmod 666 /dev/infiniband/uverbs0

scenario memlock-low sh -c "ulimit -l 64; su nobody -c '/rdmaprep devices --loopback --format json --sizes 65536 rxe_0'"
scenario memlock-unlimited sh -c "ulimit -l unlimited; su nobody -c '/rdmaprep devices --loopback --format json --sizes 65536 rxe_0'"

ip netns add other
scenario other-network-namespace ip netns exec other timeout 60 /rdmaprep devices --loopback --format json --sizes 65536 rxe_0

mv /usr/lib/x86_64-linux-gnu/libibverbs /usr/lib/x86_64-linux-gnu/away
mv /etc/libibverbs.d /etc/away
scenario no-provider small
mv /usr/lib/x86_64-linux-gnu/away /usr/lib/x86_64-linux-gnu/libibverbs
mv /etc/away /etc/libibverbs.d

rdma link delete rxe_0
rdma link delete rxe_1
scenario no-device small
mv /usr/lib/x86_64-linux-gnu/libibverbs.so.1 /usr/lib/x86_64-linux-gnu/away
scenario no-library small
