#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# no_spills.sh REPORT...: the assembler's report for each GPU source (kernels/nvcc_object.sh) must show no
# register spill, and not that tensor core instructions are serialised.
set -u
status=0 all=0
for report in "$@"; do
    kernels=$(grep -c 'spill stores' "$report")
    spilling=$(grep 'spill stores' "$report" | grep -vc ' 0 bytes spill stores, 0 bytes spill loads')
    serial=$(grep -c 'wgmma.*serialized' "$report")
    echo "$report: $kernels kernels, $spilling spill, $serial serialised"
    all=$((all + kernels))
    [ "$spilling" -eq 0 ] && [ "$serial" -eq 0 ] || status=1
done
[ "$all" -gt 16 ] || status=1 # the tensor-core kernel alone has so many
exit $status
