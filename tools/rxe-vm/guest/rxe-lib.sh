# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Helpers for tests in the guest. Load with: . "$RXE_LIB"

# rxe_pair [P]: devices rxe<2P> and rxe<2P+1> on the two ends of the pair veth<2P>, veth<2P+1>,
# addresses 10.77.P.1 and 10.77.P.2, RoCE v2 IPv4 GID at index 1. Both ends stay in the first
# network namespace, the only one rxe of this kernel carries traffic in. RDMA packets cross the
# pair, so rxe_netem and rxe_flap act on them; TCP between the two addresses takes lo instead.
# RXE_MTU (default 4200, which makes the RoCE path MTU 4096; 1500 makes it 1024).
rxe_pair() {
    rxe_first=$((2 * ${1:-0}))
    rxe_second=$((rxe_first + 1))
    ip link add veth$rxe_first type veth peer name veth$rxe_second || return
    for rxe_dev in all default veth$rxe_first veth$rxe_second; do
        rxe_conf=/proc/sys/net/ipv4/conf/$rxe_dev
        echo 0 >"$rxe_conf/rp_filter"
        echo 1 >"$rxe_conf/accept_local" # the sender's address is one of our own
        echo 1 >"$rxe_conf/arp_ignore"   # each end answers for its own address only
    done
    for rxe_n in $rxe_first $rxe_second; do
        ip link set veth"$rxe_n" mtu "${RXE_MTU:-4200}" up || return
        ip addr add "10.77.${1:-0}.$((rxe_n - rxe_first + 1))/24" dev veth"$rxe_n" || return
    done
    for rxe_n in $rxe_first $rxe_second; do
        rdma link add rxe"$rxe_n" type rxe netdev veth"$rxe_n" || return
    done
}

# rxe_netem N ARGS...: netem on what rxe<N> sends, for example: rxe_netem 0 loss 1% delay 1ms
rxe_netem() {
    rxe_n=$1
    shift
    tc qdisc replace dev veth"$rxe_n" root netem "$@"
}

# rxe_clear N: no netem on rxe<N> any more
rxe_clear() {
    tc qdisc del dev veth"$1" root 2>/dev/null || true
}

# rxe_link N up|down: the port of rxe<N>; the peer loses its carrier as well
rxe_link() {
    ip link set veth"$1" "$2"
}

# rxe_flap N SECONDS: the port of rxe<N> goes down, and up again after SECONDS
rxe_flap() {
    rxe_link "$1" down || return
    sleep "$2"
    rxe_link "$1" up
}
