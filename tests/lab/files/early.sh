#!/bin/sh
# nspawn mounts the cgroup v1 controllers read-only; containerd and the kubelet must write them.
for controller in /sys/fs/cgroup /sys/fs/cgroup/*; do
    mountpoint -q "$controller" && mount -o remount,rw,bind "$controller"
done
# The kubelet writes sysctls that belong to the whole machine. It gets files of the node's own in their place.
for copy in /opt/lab/sysctl/*; do
    real=/proc/sys/$(basename "$copy" | tr . /)
    [ -e "$real" ] && mount --bind "$copy" "$real"
done
exit 0
