#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# no_spills.sh ROOT SOURCE...: the assembler's report for each GPU source must show no register spill,
# and no warning that the tensor core instructions are serialised.
set -u
root=$1
shift
status=0
out=$(mktemp)
trap 'rm -f "$out" "$out.cubin"' EXIT
for source in "$@"; do
    if ! nvcc -std=c++17 -O3 -I"$root" -I"$root/include" -gencode=arch=compute_90a,code=sm_90a \
        -Xptxas -v -cubin -o "$out.cubin" "$source" >"$out" 2>&1; then
        cat "$out"
        exit 1
    fi
    kernels=$(grep -c 'spill stores' "$out")
    spilling=$(grep 'spill stores' "$out" | grep -vc ' 0 bytes spill stores, 0 bytes spill loads')
    serial=$(grep -c 'wgmma.*serialized' "$out")
    echo "$source: $kernels kernels, $spilling spill, $serial serialised"
    [ "$kernels" -gt 0 ] && [ "$spilling" -eq 0 ] && [ "$serial" -eq 0 ] || status=1
done
exit $status
