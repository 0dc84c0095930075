#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The guest's first process: mounts the host's root, under a temporary overlay, as the guest's root.
set -e
# Power off after a failure, instead of a panic whose 40 lines hide the reason.
trap '/bin/busybox poweroff -f' EXIT
# The shell needs /proc to find its tools, which are all in busybox.
/bin/busybox mount -t proc proc /proc
for module in $(cat /modules/order); do insmod "/modules/$module"; done

# cache=loose keeps files once they are read; otherwise every import would ask the host again. The guest does not
# see changes of the host's files.
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose hostroot /lower
mount -t tmpfs -o size=75%,mode=755 tmpfs /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /newroot

mount -t proc proc /newroot/proc
mount -t sysfs sysfs /newroot/sys
mount -t cgroup2 cgroup2 /newroot/sys/fs/cgroup
mount -t devtmpfs devtmpfs /newroot/dev
mkdir /newroot/dev/shm /newroot/dev/pts
mount -t tmpfs -o mode=1777 tmpfs /newroot/dev/shm
mount -t devpts -o mode=620,ptmxmode=666 devpts /newroot/dev/pts
ln -s /proc/self/fd /newroot/dev/fd
for n in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${n%:*}" "/newroot/dev/${n#*:}"; done
# An empty /run: the host's has sockets without listeners in the guest.
mount -t tmpfs -o mode=755 tmpfs /newroot/run
mkdir /newroot/run/guest /newroot/run/lock
chmod 1777 /newroot/run/lock
cp -r /emulated /newroot/run/guest
ip link set lo up
# The C library treats a host with only the address 127.0.0.1 as one without IPv4, and Slurm would resolve no host.
ip address add 127.0.0.2/8 dev lo

python=$(cat /python)
start='import sys; sys.path.insert(0, "/run/guest"); from emulated import agent; agent.first_process()'
umount /proc
exec /bin/busybox switch_root -c /dev/console /newroot "$python" -I -S -c "$start"
