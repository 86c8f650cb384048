#!/bin/sh
# Runs one host: joins its cgroups, enters its own namespaces, boots, and boots again after a reboot.
# When it dies, even by SIGKILL, the kernel ends the whole host: processes, mounts, network.
#
#   supervisor.sh enter NAME ADDRESS/PREFIX DIRECTORY LOWER CGROUP...
#
# It prints "ready" in its namespaces and boots when it has read a line: if the starter died, there is none.
set -eu
step=$1 name=$2 address=$3 directory=$4 lower=$5
shift 5

case $step in
enter)
    for cgroup; do
        echo $$ >"$cgroup/cgroup.procs"
    done
    exec unshare --mount --pid --net --ipc --uts --fork --kill-child --mount-proc --propagation private \
        sh "$0" boot "$name" "$address" "$directory" "$lower"
    ;;
boot)
    echo ready
    read -r _ || exit 1
    exec </dev/null >&2

    ip link set lo up
    ip address add "$address" dev host0
    ip link set host0 up

    mkdir -p /run/systemd
    mount -t tmpfs tmpfs /run/systemd # nspawn keeps state there: the machine must not see it
    mount -t overlay overlay -o "lowerdir=$lower,upperdir=$directory/upper,workdir=$directory/work" "$directory/root"

    # network: net.* sysctls are writable, they belong to the host's own network namespace
    # bpf:     systemd in the host enforces DeviceAllow= and IPAddressDeny= with it
    export SYSTEMD_NSPAWN_API_VFS_WRITABLE=network
    while :; do
        status=0
        systemd-nspawn --quiet --boot --directory="$directory/root" --machine="$name" --hostname="$name" \
            --register=no --keep-unit --network-namespace-path=/proc/self/ns/net --system-call-filter=bpf \
            --resolv-conf=off --timezone=off --link-journal=no --console=pipe || status=$?
        # with --keep-unit a reboot is left to us, and this status says so
        [ "$status" = 133 ] || exit "$status"
    done
    ;;
esac
