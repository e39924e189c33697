#!/bin/sh
# softroce-init.sh - the first process of the guest of softroce.sh: makes two soft-RoCE devices, runs /guest-script and turns the
# machine off. rxe_0 is on v0 (10.9.0.1/24), rxe_1 on v1 (10.9.1.1/24); each is one end of a veth pair of its own.
export PATH=/usr/sbin:/usr/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
dmesg -n 1
while read -r module; do insmod "/modules/$module"; done </modules/order
ip link set lo up
for number in 0 1; do
  ip link add "v$number" address "02:00:00:00:00:0$number" type veth peer name "peer$number"
  ip addr add "10.9.$number.1/24" dev "v$number"
  ip link set "peer$number" up
  ip link set "v$number" up
  rdma link add "rxe_$number" type rxe netdev "v$number"
done
# As udev's rule makes them on a real system.
chmod 666 /dev/infiniband/uverbs* /dev/infiniband/rdma_cm
# The IPv6 link-local address of an interface is in the GID table once the kernel is sure that nobody else has it.
for number in 0 1; do
  until grep -qs '4: ACTIVE' "/sys/class/infiniband/rxe_$number/ports/1/state"; do sleep 0.1; done
  while ip -6 addr show dev "v$number" | grep -q tentative; do sleep 0.1; done
done
stty -F /dev/ttyS1 raw -echo
cd /
sh /guest-script >/dev/ttyS1 2>&1 </dev/null
printf 'GUEST-END %s\n' "$?" >/dev/ttyS1
sync
poweroff -f
