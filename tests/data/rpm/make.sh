#!/bin/sh
# Makes the databases in this directory with rpm itself (README.md). Needs Debian's rpm (4.18), db-util, sqlite3 and python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=1700000000 LC_ALL=C

# package NAME VERSION RELEASE SOURCE 'TAG: VALUE;TAG: VALUE' 'PATH PATH': an rpm with empty files; a path with a slash at its
# end is a directory. SOURCE becomes the spec's name, and with it SOURCERPM.
package() {
    spec=$work/$1.spec
    {
        printf 'Name: %s\nVersion: %s\nRelease: %s\nSummary: x\nLicense: x\nAutoReqProv: no\n' "$4" "$2" "$3"
        if [ "$1" != "$4" ]; then
            printf '%%description\nx\n%%package -n %s\nSummary: x\n' "$1"
        fi
        printf '%s\n' "$5" | tr ';' '\n'
        if [ "$1" != "$4" ]; then printf '%%description -n %s\nx\n' "$1"; else printf '%%description\nx\n'; fi
        printf '%%install\n'
        for path in $6; do
            case $path in
                */) printf 'mkdir -p %%{buildroot}%s\n' "$path" ;;
                *) printf 'mkdir -p %%{buildroot}%s; : > %%{buildroot}%s\n' "${path%/*}" "$path" ;;
            esac
        done
        if [ "$1" != "$4" ]; then printf '%%files -n %s\n' "$1"; else printf '%%files\n'; fi
        printf '%s\n' "$6" | tr ' ' '\n'
    } > "$spec"
    rpmbuild -bb --quiet --target x86_64 --define "_topdir $work/top" --define "_rpmdir $out" \
        --define '_build_id_links none' --define '__os_install_post %nil' --define '_buildhost localhost' \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'debug_package %nil' \
        --define '__strip /bin/true' "$spec" >/dev/null
}

# install BACKEND DIRECTORY RPM...: rpm's own database of these packages.
install() {
    backend=$1 directory=$2
    shift 2
    mkdir -p "$directory"
    rpm --force-debian --dbpath "$directory" --define "_db_backend $backend" -i --justdb --nodeps --noscripts \
        --nosignature --ignorearch --ignoreos "$@"
}

# The base that every one has. Its many files make a header of several pages.
base() {
    many=$(i=0; while [ $i -lt 400 ]; do printf ' /usr/share/locale/l%03d/LC_MESSAGES/libc.mo' $i; i=$((i + 1)); done)
    package glibc 2.34 "$1" glibc 'Provides: libc.so.6(GLIBC_2.34)(64bit);Provides: rtld(GNU_HASH)' "/sbin/ldconfig$many"
    package bash 5.1.8 "$1" bash 'Requires: libc.so.6(GLIBC_2.34)(64bit)' '/usr/bin/bash /usr/bin/sh'
    package dbus 1.12.20 "$1" dbus 'Epoch: 1;Requires: glibc >= 2.17' /usr/bin/dbus-daemon
    package dbus-libs 1.12.20 "$1" dbus-libs "Epoch: 1;Requires: dbus = 1:1.12.20-$1;Requires: (glibc or musl)" /usr/lib64/libdbus-1.so.3
    package tzdata 2023c "$1" tzdata 'BuildArch: noarch' /usr/share/zoneinfo/UTC
}

# 1. RHEL 9 with MLNX_OFED 23.10, sqlite.
out=$work/el9
base 60.el9
v=2307mlnx47
r=1.2310119
package rdma-core $v $r rdma-core 'Requires: /bin/sh;Requires: /sbin/ldconfig' /etc/rdma/rdma.conf
package libibverbs $v $r rdma-core "Requires: rdma-core;Provides: liberdma = $v-$r;Requires: libc.so.6(GLIBC_2.34)(64bit)" \
    '/usr/lib64/libibverbs.so.1.14.47.0 /usr/lib64/libibverbs/libmlx5-rdmav34.so /etc/libibverbs.d/mlx5.driver'
package libibverbs-utils $v $r rdma-core "Requires: libibverbs = $v-$r" /usr/bin/ibv_devinfo
package libibumad $v $r rdma-core 'Requires: glibc' /usr/lib64/libibumad.so.3
package librdmacm $v $r rdma-core "Requires: libibverbs = $v-$r" /usr/lib64/librdmacm.so.1
package librdmacm-utils $v $r rdma-core "Requires: librdmacm = $v-$r" /usr/bin/rping
package infiniband-diags $v $r rdma-core 'Requires: libibumad' /usr/sbin/ibstat
package rdma-core-devel $v $r rdma-core "Requires: libibverbs = $v-$r" /usr/include/infiniband/verbs.h
package perftest 23.10.0 0.29.g0705c22.2310119 perftest 'Requires: libibverbs' /usr/bin/ib_write_bw
package mlnx-tools 23.10 0.2310119 mlnx-tools 'Requires: bash' /usr/sbin/show_gids
package libnccl 2.21.5 1+cuda12.4 libnccl 'Requires: glibc' /usr/lib64/libnccl.so.2.21.5
package ucx 1.16.0 1.2310119 ucx 'Requires: libibverbs >= 28' /opt/mellanox/ucx/lib/libucp.so.0
install sqlite "$work/ofed" "$out"/*/*.rpm
gzip -9nc "$work/ofed/rpmdb.sqlite" > "$here/el9-ofed-rpmdb.sqlite.gz"

# 2. The same distribution with the vendor's build, where the last transaction is still in the write-ahead log: a reader of
#    the older state keeps rpm from moving it into the database at its end.
base_rpms=$(ls "$out"/*/glibc-* "$out"/*/bash-* "$out"/*/dbus-* "$out"/*/tzdata-*)
# shellcheck disable=SC2086 # several
install sqlite "$work/wal" $base_rpms
out=$work/erdma
package rdma-core 44.1 2 rdma-core 'Requires: /bin/sh' /etc/rdma/rdma.conf
package libibverbs 44.1 2 rdma-core 'Requires: rdma-core = 44.1-2;Provides: liberdma = 44.1-2' \
    '/usr/lib64/libibverbs.so.1.14.44.1 /usr/lib64/libibverbs/liberdma-rdmav34.so /etc/libibverbs.d/erdma.driver'
package librdmacm 44.1 2 rdma-core 'Requires: libibverbs = 44.1-2' /usr/lib64/librdmacm.so.1
python3 - "$work/wal/rpmdb.sqlite" <<'PY' &
import sqlite3, sys, time, os
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin")
connection.execute("select count(*) from Packages").fetchall()
open(sys.argv[1] + ".held", "w").close()
while os.path.exists(sys.argv[1] + ".held"):
    time.sleep(0.1)
PY
holder=$!
while [ ! -e "$work/wal/rpmdb.sqlite.held" ]; do sleep 0.1; done
install sqlite "$work/wal" "$out"/*/*.rpm
gzip -9nc "$work/wal/rpmdb.sqlite" > "$here/el9-wal-rpmdb.sqlite.gz"
gzip -9nc "$work/wal/rpmdb.sqlite-wal" > "$here/el9-wal-rpmdb.sqlite-wal.gz"
echo "without the log: $(sqlite3 "file:$work/wal/rpmdb.sqlite?immutable=1" 'select count(*) from Packages')" \
    "with it: $(sqlite3 "$work/wal/rpmdb.sqlite" 'select count(*) from Packages')"
rm "$work/wal/rpmdb.sqlite.held"
wait $holder

# 3. SUSE's names, ndb. Debian's rpm is built without that format, so that the headers of a sqlite database are put into it
#    here, as rpm's lib/backend/ndb/rpmpkg.c does: one page of slots, then the blobs.
out=$work/suse
base 150400.1
package rdma-core 42.0 150500.1 rdma-core 'Requires: /bin/sh' /etc/rdma/rdma.conf
package libibverbs1 42.0 150500.1 rdma-core 'Requires: rdma-core;Provides: libibverbs = 42.0' /usr/lib64/libibverbs.so.1.14.42.0
package libmlx5-1 42.0 150500.1 rdma-core 'Requires: libibverbs1' /usr/lib64/libmlx5.so.1.24.42.0
package libibverbs 42.0 150500.1 rdma-core 'Requires: libibverbs1' /usr/lib64/libibverbs/libmlx5-rdmav34.so
package zypper 1.14.60 150400.1 zypper 'Requires: bash' /usr/bin/zypper
install sqlite "$work/suse-sqlite" "$out"/*/*.rpm
python3 - "$work/suse-sqlite/rpmdb.sqlite" > "$work/Packages.db" <<'PY'
import sqlite3, struct, sys, zlib
rows = sqlite3.connect(sys.argv[1]).execute("select hnum, blob from Packages").fetchall()
slots, blobs = [], b""
for number, header in rows:
    offset = (4096 + len(blobs)) // 16
    blob = struct.pack("<4sIII", b"BlbS", number, 1, len(header)) + header
    blob += bytes(-(len(blob) + 12) % 16)
    blob += struct.pack("<II4s", zlib.adler32(blob), len(header), b"BlbE")
    slots.append(struct.pack("<4sIII", b"Slot", number, offset, len(blob) // 16))
    blobs += blob
# The second is free, as after a removal.
slots.insert(1, struct.pack("<4sIII", b"Slot", 0, 0, 0))
slots += [struct.pack("<4sIII", b"Slot", 0, 0, 0)] * (254 - len(slots))
header = struct.pack("<4sIIII", b"RpmP", 0, 1, 1, len(rows) + 1).ljust(32, b"\0")
sys.stdout.buffer.write(header + b"".join(slots) + blobs)
PY
gzip -9nc "$work/Packages.db" > "$here/suse-Packages.db.gz"

# 4. CentOS 7 with the providers that were packages of their own (rdma-core did not exist yet), Berkeley DB. rpm 4.18 only
#    reads that format: the headers of a sqlite database go into a hash file that Berkeley DB's own db_load writes, with
#    keys and byte order as rpm has them.
out=$work/el7
base 1.el7
package libibverbs 1.2.1 1.el7 libibverbs 'Requires: glibc' /usr/lib64/libibverbs.so.1.0.0
package libmlx5 1.2.1 8.el7 libmlx5 'Requires: libibverbs' '/usr/lib64/libmlx5-rdmav2.so /etc/libibverbs.d/mlx5.driver'
package libmlx4 1.2.1 1.el7 libmlx4 'Requires: libibverbs' '/usr/lib64/libmlx4-rdmav2.so'
package librdmacm 1.1.0 2.el7 librdmacm 'Requires: libibverbs' /usr/lib64/librdmacm.so.1.0.0
install sqlite "$work/el7-sqlite" "$out"/*/*.rpm
for order in 1234 4321; do
    python3 - "$work/el7-sqlite/rpmdb.sqlite" $order > "$work/dump" <<'PY'
import sqlite3, struct, sys
order = {"1234": "<I", "4321": ">I"}[sys.argv[2]]
rows = sqlite3.connect(sys.argv[1]).execute("select hnum, blob from Packages").fetchall()
print("VERSION=3\nformat=bytevalue\ntype=hash\ndb_pagesize=4096\ndb_lorder=%s\nHEADER=END" % sys.argv[2])
rows.insert(0, (0, struct.pack(order, max(number for number, _ in rows))))
for number, blob in rows:
    print(" " + struct.pack(order, number).hex())
    print(" " + blob.hex())
print("DATA=END")
PY
    rm -f "$work/Packages"
    db_load -f "$work/dump" "$work/Packages"
    suffix=$([ $order = 1234 ] || echo -big-endian)
    gzip -9nc "$work/Packages" > "$here/el7-split-Packages$suffix.gz"
done
# rpm itself must understand it.
mkdir "$work/check" && gunzip -c "$here/el7-split-Packages.gz" > "$work/check/Packages"
rpm --dbpath "$work/check" --define '_db_backend bdb_ro' -qa 2>/dev/null | sort
ls -l "$here"/*.gz
