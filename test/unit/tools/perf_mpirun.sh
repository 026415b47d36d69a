#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# perf_mpirun.sh GEMMAR_PERF: four ranks that a real mpirun starts; two nodes by NCCL_HOSTID.
set -eu
perf=$1
if ! mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    echo 'no mpirun of Open MPI, skipped'
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOFTHCA_FABRIC="$work/fabric" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# COMMAND...: 0 when gemmar_perf printed the grid and ok
run() {
    # shellcheck disable=SC2016
    timeout 120 mpirun -n 4 --oversubscribe sh -c \
        'NCCL_HOSTID=node$((OMPI_COMM_WORLD_RANK / RANKS)) exec "$@"' sh \
        "$perf" --hca soft --check --iters 2 --warmup 1 --shapes 33x40x50,128x256x64 "$@" \
        >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
    cat "$work/out"
    grep -q '^# ok$' "$work/out"
}
export RANKS=2
run
grep -q '^# 2 nodes x 2 ranks' "$work/out"
RANKS=1
run --algo two-shot
grep -q '^# 4 nodes x 1 ranks' "$work/out"

# a rank that fails ends the job, and the sentence is there
if timeout 60 mpirun -n 4 --oversubscribe "$perf" --input-a /nonexistent.npy \
    >"$work/out" 2>&1; then
    echo 'a job whose ranks fail ended well'
    exit 1
fi
grep -q 'gemmar_perf: cannot open /nonexistent.npy' "$work/out"
