#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the rxe guest: the plugin's contract on real libibverbs and Soft-RoCE, as one TAP stream.
# usage: vm_suite.sh BUILD_DIR
set -uo pipefail
build=$1
# shellcheck source=tools/rxe-vm/guest/rxe-lib.sh
. "$RXE_LIB"
# shellcheck source=test/verbs/vm_lib.sh
. "$(dirname "$0")/../verbs/vm_lib.sh"

# Two pairs of devices, rxe0 to rxe1 and rxe2 to rxe3: the rails. Where one process has both ends
# each device talks to itself; between two processes the packets cross the pairs.
if ! rxe_pair 0 || ! rxe_pair 1; then
    echo 'Bail out! no rxe devices'
    exit 1
fi
only_rxe
devices='0 1 2 3'

# rxe retries for ever at 7. A retransmission that was not needed, because an emulated processor
# stood still for a while, can end in REM_INV_REQ_ERR: so 0.27 s, seven times.
export NCCL_IB_TIMEOUT=16 NCCL_IB_RETRY_CNT=6
contract=("$build/test/plugin/net-contract" --plugin "$build/plugin/libnccl-net-gemmar.so"
    --max-bytes 8388608 --rounds 2 --seconds 90)
across=("${contract[@]}" --mode two --sender-hca '=rxe0,rxe2' --receiver-hca '=rxe1,rxe3')

program 'one process' 120 "${contract[@]}" --api 12 --mode one --case properties,load
program 'one process, 4 rails' 120 "${contract[@]}" --api 12 --mode one --rails 4 --transfers 500 \
    --case zero,capacity,rails
program '2 rails' 200 "${across[@]}" --api 12 --rails 2 --transfers 500 \
    --case sizes,rails,killed-receiver
program '2 rails, groups' 100 "${across[@]}" --api 12 --rails 2 --case groups --max-bytes 65536
program '1 rail' 150 "${across[@]}" --api 8 --transfers 500 --case sizes,rails,killed-receiver
under_netem 'loss 1% delay 1ms' \
    program '2 rails with loss' 150 "${across[@]}" --api 12 --rails 2 --transfers 500 --case sizes,rails

# A rail goes down and comes back under traffic: the receiver's port, then the sender's.
for n in 1 0; do
    program "2 rails, rxe$n is flapped" 100 "${across[@]}" --api 12 --rails 2 --transfers 100 \
        --case disturbed --while ". $RXE_LIB; sleep 0.5; rxe_flap $n 1; sleep 1"
done
# The same without a word from the device: all packets are lost for longer than all retries take.
program '2 rails, one is a black hole' 100 "${across[@]}" --api 12 --rails 2 --transfers 100 \
    --case disturbed --while ". $RXE_LIB; sleep 0.5; rxe_netem 0 loss 100% && rxe_netem 1 loss 100% &&
        sleep 3; rxe_clear 0; rxe_clear 1; sleep 1"
# Those of one direction, for less than that.
NCCL_IB_TIMEOUT=18 program '1 rail, nothing comes through for a while' 100 "${contract[@]}" --api 12 \
    --mode two --sender-hca '=rxe0' --receiver-hca '=rxe1' --transfers 100 --case disturbed \
    --while ". $RXE_LIB; sleep 0.5; rxe_netem 1 loss 100% && sleep 0.3 && rxe_clear 1; sleep 0.5"

echo "1..$count"
