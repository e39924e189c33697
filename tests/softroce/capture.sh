# shellcheck shell=dash
# What the files of tests/data/softroce are made with, in the guest: what tools print, and every file of sysfs about the devices.
# grep -r prints `PATH:LINE` of each file in one go; what cannot be read it names on stderr.
show() {
  echo "== $1"
  shift
  "$@"
}
show uname.txt uname -a
show ibv_devices.txt ibv_devices
show ibv_devinfo.txt ibv_devinfo -v
show rdma_link.txt rdma -d link
show rdma_dev.txt rdma -d dev
show ip_address.txt ip address
show sysfs.txt true
for device in rxe_0 rxe_1; do
  for link in $(find /sys/class/infiniband/$device/ -type l) /sys/class/infiniband/$device; do
    echo "$link -> $(readlink "$link")"
  done
  grep -r '' /sys/class/infiniband/$device/ 2>&1
done
for folder in /sys/class/infiniband_verbs/uverbs* /sys/class/net/v?; do
  echo "$folder -> $(readlink "$folder")"
  find "$folder/" -maxdepth 1 -type f -exec grep '' /dev/null {} + 2>&1
done
