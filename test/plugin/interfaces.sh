#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# interfaces.sh LIBDIR SOFTHCA NET_CONTRACT PLUGIN: connections over each interface that the user may
# name (field case C-03), in a network of its own; prints TAP.
set -u
here=$(dirname "$0")
if [ "${IN_OWN_NETWORK:-}" != 1 ]; then
    if ! command -v ip >/dev/null || ! unshare -rn true 2>/dev/null; then
        echo '1..0 # SKIP no network namespace can be made here'
        exit 0
    fi
    IN_OWN_NETWORK=1 exec unshare -rn "$0" "$@"
fi
lib=$1 softhca=$2 contract=$3 plugin=$4

add() { # NAME: a pair of interfaces without addresses of the kernel's choice
    ip link add "$1" type veth peer name "peer-$1" && ip link set "$1" addrgenmode none &&
        ip link set "peer-$1" addrgenmode none && ip link set "$1" up && ip link set "peer-$1" up
}
if ! { ip link set lo up && add docker0 && add eth0 && add six0 && add local0 &&
    ip addr add 172.17.0.1/16 dev docker0 && ip addr add 192.0.2.1/24 dev eth0 &&
    ip addr add fd00:7::1/64 dev six0 nodad && ip addr add fe80::7/64 dev local0 nodad; }; then
    echo '1..0 # SKIP no pairs of interfaces here'
    exit 0
fi

number=0 bad=0
connect() { # FAMILY NCCL_SOCKET_IFNAME WANTED: what the output holds
    number=$((number + 1))
    out=$(NCCL_SOCKET_FAMILY=$1 NCCL_SOCKET_IFNAME=$2 VERBOSE=1 timeout 60 "$here/contract.sh" "$lib" \
        "$softhca" ib 1 "$contract" --plugin "$plugin" --api 12 --case connect 2>&1)
    if printf '%s\n' "$out" | grep -q "$3"; then
        echo "ok $number - '$2' $1"
    else
        bad=1
        echo "not ok $number - '$2' $1: no '$3'"
        printf '%s\n' "$out" | sed 's/^/# /'
    fi
}
works='^ok 1 - v12 connect'
connect '' '' "$works"
connect '' lo "$works"
connect '' =eth0 "$works"
connect '' ^docker,lo "$works"
connect '' docker0 "$works"
connect AF_INET6 '' "$works"
connect '' =six0 "$works"
connect '' =local0 "$works"
connect AF_INET6 =eth0 'no interface with an IPv6 address for set-up matches NCCL_SOCKET_IFNAME =eth0; found: lo '
connect '' =eth7 'NCCL_SOCKET_IFNAME =eth7; found: lo 127.0.0.1, .*eth0 192.0.2.1, .*fe80::7%local0'
connect '' = "NCCL_SOCKET_IFNAME '=' names nothing"
# nothing but IPv6
for i in docker0 eth0 lo; do
    ip -4 addr flush dev $i
done
connect '' '' "$works"
ip addr flush dev six0
connect '' '' "$works"
ip addr flush dev local0
connect '' '' 'no interface for set-up; found: lo ::1'
echo "1..$number"
exit $bad
