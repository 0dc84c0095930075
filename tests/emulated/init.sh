#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The guest's first process: makes the host's root, under a throw-away overlay, the guest's root.
set -e
# A failure ends in this, not in a panic whose 40 lines hide the reason.
trap '/bin/busybox poweroff -f' EXIT
# The shell finds its tools, all of them in busybox, as long as it has /proc.
/bin/busybox mount -t proc proc /proc
for module in $(cat /modules/order); do insmod "/modules/$module"; done

# The host's files do not change while the guest is up, as far as the guest can tell: cache=loose keeps
# what was read once, without which every import asks the host again.
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
# An empty /run: the host's holds sockets that nobody listens to in here.
mount -t tmpfs -o mode=755 tmpfs /newroot/run
mkdir /newroot/run/guest /newroot/run/lock
chmod 1777 /newroot/run/lock
cp -r /emulated /newroot/run/guest
ip link set lo up
# For the C library, a host whose only address is 127.0.0.1 has no IPv4, and Slurm finds nobody then.
ip address add 127.0.0.2/8 dev lo

python=$(cat /python)
start='import sys; sys.path.insert(0, "/run/guest"); from emulated import agent; agent.first_process()'
umount /proc
exec /bin/busybox switch_root -c /dev/console /newroot "$python" -I -S -c "$start"
