#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# programs.sh LIBDIR [SHORT]: Debian's own verbs programs between two processes over softhca, as
# TAP. They are linked against the real library and check that softhca keeps its ABI.
set -u
lib=$1 short=${2:-}
command -v ibv_rc_pingpong ib_write_bw > /dev/null || {
    echo '1..0 # SKIP ibverbs-utils and perftest are not installed'
    exit 0
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export SOFTHCA_FABRIC="$dir/fabric"
export LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
all=-a # sizes: up to 8 MiB
san=$(ldd "$lib/libibverbs.so.1" | awk '/lib[at]san/ { print $3 }')
if [ -n "$san" ]; then
    export LD_PRELOAD="$san" ASAN_OPTIONS=detect_leaks=0 # theirs are not ours to mend
    all='-s 1048576' # other lines have smaller ones
fi
port=18700
n=0

report() { # OK NAME
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        sed 's/^/# /' "$dir/server" "$dir/client" | tail -20
        : > "$dir/failed"
    fi
}

one() { # COMMAND...: alone
    : > "$dir/client"
    timeout 60 "$@" > "$dir/server" 2>&1
    report $? "$*"
}

# perftest -F: its measurement of the clock fails on a busy machine and would end the run
two() { # COMMAND...: once as a server on node a, once as a client on node b
    port=$((port + 1))
    SOFTHCA_NODE=a timeout 120 "$@" -p $port > "$dir/server" 2>&1 &
    server=$!
    tries=0
    while :; do # until the server listens
        SOFTHCA_NODE=b timeout 120 "$@" -p $port localhost > "$dir/client" 2>&1
        client=$?
        tries=$((tries + 1))
        [ $client = 0 ] || [ $tries = 40 ] && break
        grep -qE "Couldn't connect|Unable to open|Failed to connect" "$dir/client" || break
        sleep 0.1
    done
    wait $server
    report $(($? + client)) "$*"
}

one ibv_devinfo -v
one ibv_devices
two ibv_rc_pingpong
two ibv_rc_pingpong -c -s 100000 -n 200
two ibv_rc_pingpong -N
two ibv_rc_pingpong -e
two ibv_rc_pingpong -g 0 -c
two ibv_srq_pingpong
two ib_write_bw -F -s 65536 -n 1000
two ib_write_lat -F -s 8 -n 500
if [ -z "$short" ]; then
    # shellcheck disable=SC2086
    two ib_write_bw -F $all -q 4 -n 20
    two ib_write_bw -F -b -s 4096 -n 1000
    # shellcheck disable=SC2086
    two ib_send_bw -F $all -n 20
    two ib_send_bw -F -e -s 65536 -n 500
    two ib_send_lat -F -s 64 -n 500
    # shellcheck disable=SC2086
    two ib_read_bw -F $all -q 2 -n 20
    two ib_read_lat -F -s 64 -n 500
    two ib_atomic_bw -F -n 1000
    two ib_atomic_bw -F -q 3 -A CMP_AND_SWAP -n 1000
    two ib_write_bw -F --use_old_post_send -s 1024 -n 1000
    SOFTHCA_FABRIC=$dir/roce SOFTHCA_LINK=roce
    export SOFTHCA_FABRIC SOFTHCA_LINK
    two ib_write_bw -F -x 3 -s 65536 -n 1000
    two ibv_rc_pingpong -g 3 -c
fi
echo "1..$n"
[ ! -e "$dir/failed" ]
