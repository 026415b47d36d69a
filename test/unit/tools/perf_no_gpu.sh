#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# perf_no_gpu.sh GEMMAR_PERF: without a GPU, --device cuda ends with one sentence.
set -u
out=$(CUDA_VISIBLE_DEVICES='' timeout 30 "$1" --device cuda --ranks-per-node 2 2>&1)
status=$?
echo "$out"
[ $status -eq 1 ] && [ "$(echo "$out" | wc -l)" -eq 1 ] &&
    echo "$out" | grep -q '^gemmar_perf: rank [01]: --device cuda: no CUDA device: '
