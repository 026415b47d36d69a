#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the rxe guest: every test program on real libibverbs and Soft-RoCE, as one TAP stream.
# usage: vm_suite.sh BUILD_DIR
set -uo pipefail
build=$1
# shellcheck source=tools/rxe-vm/guest/rxe-lib.sh
. "$RXE_LIB"

count=0
result() { # OK|NOT-OK TEXT
    count=$((count + 1))
    if [ "$1" = ok ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
    fi
}

# program NAME SECONDS COMMAND...: each TAP line of COMMAND is one of ours, with NAME before it; one
# line more says that the program ended well and printed as many as it had announced.
program() {
    local name=$1 seconds=$2 line plan='' seen=0 status=0 started=$SECONDS
    shift 2
    if [ ! -x "$1" ]; then
        result ok "$name # SKIP not built"
        return
    fi
    while IFS= read -r line; do
        case $line in
        'ok '* | 'not ok '*)
            seen=$((seen + 1))
            count=$((count + 1))
            echo "${line%%ok *}ok $count - $name: ${line#*ok * - }"
            ;;
        1..*'SKIP'*)
            plan=0
            echo "# $name: ${line#*SKIP }"
            ;;
        1..*) plan=${line#1..} ;;
        'status '*) status=${line#status } ;;
        '') ;;
        *) echo "# ${line#\# }" ;;
        esac
    done < <(
        timeout -k 5 "$seconds" "$@" 2>&1 </dev/null
        printf '\nstatus %s\n' "$?"
    )
    echo "# $name took $((SECONDS - started)) s"
    if [ "$status" = 124 ]; then
        result not-ok "$name ends within $seconds s"
    elif [ "$status" != 0 ] || [ "$plan" != "$seen" ]; then
        result not-ok "$name ends well (status $status, $seen of ${plan:-unknown} results)"
    else
        result ok "$name ends well"
    fi
}

# plain NAME SECONDS COMMAND...: a program that prints no TAP, its status is the one result.
plain() {
    local name=$1 seconds=$2 log=/tmp/vm_suite.log status=0 started=$SECONDS
    shift 2
    if [ ! -x "$1" ]; then
        result ok "$name # SKIP not built"
        return
    fi
    timeout -k 5 "$seconds" "$@" >"$log" 2>&1 </dev/null || status=$?
    if [ "$status" = 0 ]; then
        result ok "$name"
    else
        result not-ok "$name (status $status)"
    fi
    echo "# $name took $((SECONDS - started)) s"
    sed 's/^\(# \)\{0,1\}/# /' "$log"
}

# under_netem 'ARGS' COMMAND...: COMMAND while both directions suffer, for example
#   under_netem 'loss 1% delay 1ms' program transport_loss 120 "$build/test/protocol/..."
under_netem() {
    local args=$1
    shift
    # shellcheck disable=SC2086
    if ! rxe_netem 0 $args || ! rxe_netem 1 $args; then
        result not-ok "netem $args"
    fi
    "$@"
    rxe_clear 0
    rxe_clear 1
}

if ! rxe_pair 0; then
    echo 'Bail out! no rxe devices'
    exit 1
fi

# One line for each program. The devices are rxe0 and rxe1, joined by veth0 and veth1; GID index 1.
conformance=$build/test/verbs/verbs_conformance
program conformance 300 "$conformance" --device rxe0,rxe1 \
    --port-down 'ip link set veth0 down' --port-up 'ip link set veth0 up'
under_netem 'loss 1% delay 1ms' \
    program 'conformance with loss' 200 "$conformance" --device rxe0,rxe1 --only order.stamp,peer.stamps

# The library's channel between two processes; rxe retries for ever at 7.
export NCCL_IB_GID_INDEX=1 NCCL_IB_TIMEOUT=14 NCCL_IB_RETRY_CNT=6
pair=$build/test/protocol/transport_pair
program transport 200 "$pair" --device =rxe0,=rxe1 \
    --port-down 'ip link set veth0 down' --port-up 'ip link set veth0 up'
under_netem 'loss 1% delay 1ms' \
    program 'transport with loss' 120 "$pair" --device =rxe0,=rxe1 --only 'queue pair'

# The whole data path with the CPU in the place of the GPU: every element of every result is checked.
perf=$build/tools/gemmar_perf/gemmar_perf
shapes='1x1x1,129x257x65,64x1024x128'
checked=(--device cpu --hca real --check --iters 1 --warmup 0 --shapes "$shapes")
plain 'gemmar_perf on 2 nodes x 2 ranks' 240 "$perf" "${checked[@]}" --nodes 2 --ranks-per-node 2
plain 'gemmar_perf, two-shot and immediate data' 240 \
    "$perf" "${checked[@]}" --nodes 3 --algo two-shot --signal imm
under_netem 'loss 1% delay 1ms' \
    plain 'gemmar_perf with loss' 240 "$perf" "${checked[@]}" --nodes 2

echo "1..$count"
