#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the rxe guest: every test program on real libibverbs and Soft-RoCE, as one TAP stream.
# usage: vm_suite.sh BUILD_DIR
set -uo pipefail
build=$1
# shellcheck source=tools/rxe-vm/guest/rxe-lib.sh
. "$RXE_LIB"

# shellcheck source=test/verbs/vm_lib.sh
. "$(dirname "$0")/vm_lib.sh"

if ! rxe_pair 0; then
    echo 'Bail out! no rxe devices'
    exit 1
fi

# One line for each program. The devices are rxe0 and rxe1, joined by veth0 and veth1; GID index 1.
conformance=$build/test/verbs/verbs_conformance
program conformance 300 "$conformance" --device rxe0,rxe1 \
    --port-down 'ip link set veth0 down' --port-up 'ip link set veth0 up'
only_rxe
under_netem 'loss 1% delay 1ms' \
    program 'conformance with loss' 200 "$conformance" --device rxe0,rxe1 --only order.stamp,peer.stamps

# The library's channel between two processes; rxe retries for ever at 7. Emulated processors stand
# still for long: retries go on for seconds (transport_pair asks for less where they must run out).
export NCCL_IB_GID_INDEX=1 NCCL_IB_TIMEOUT=18 NCCL_IB_RETRY_CNT=6
pair=$build/test/protocol/transport_pair
program transport 500 "$pair" --device =rxe0,=rxe1 \
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
