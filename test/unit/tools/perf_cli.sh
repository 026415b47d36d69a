#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# perf_cli.sh GEMMAR_PERF SECONDS SIZE: launching, checking and failing as a user sees them; prints TAP.
# SECONDS is a timeout that ranks which work keep, and SIZE that of a check that should take longer.
set -u
perf=$1 short=$2 size=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0 bad=0

# NAME STATUS PATTERN COMMAND...: the exit status, and a line of the output
expect() {
    local name=$1 status=$2 pattern=$3 got
    shift 3
    number=$((number + 1))
    timeout 200 "$@" >"$work/out" 2>&1
    got=$?
    if [ "$got" -eq "$status" ] && grep -Eq -- "$pattern" "$work/out"; then
        echo "ok $number - $name"
    else
        bad=1
        echo "not ok $number - $name"
        echo "# status $got, want $status; no line like: $pattern"
        sed 's/^/# /' "$work/out"
    fi
}

# The output of the last command says its sentence once.
once() {
    number=$((number + 1))
    if [ "$(grep -c '^gemmar_perf:' "$work/out")" -eq 1 ]; then
        echo "ok $number - one sentence: $1"
    else
        bad=1
        echo "not ok $number - one sentence: $1"
        sed 's/^/# /' "$work/out"
    fi
}

npy() { # FILE DESCR ROWS COLUMNS BYTES
    head="{'descr': '$2', 'fortran_order': False, 'shape': ($3, $4), }"
    # shellcheck disable=SC2059
    printf "\\223NUMPY\\001\\000\\x$(printf %02x ${#head})\\000%s" "$head" >"$1"
    head -c "$5" /dev/zero >>"$1"
}

quick=(--iters 3 --warmup 1)
expect 'two ranks, checked' 0 '^# ok$' \
    "$perf" --ranks-per-node 2 --check --shapes 1x1x1,33x40x50,0x3x4,3x4x0 "${quick[@]}"
for dtype in fp16 fp32; do
    expect "$dtype, weights stored the other way" 0 '^# ok$' \
        "$perf" --ranks-per-node 3 --check --dtype $dtype --layout nt --shapes 33x40x300 "${quick[@]}"
done
expect 'two runs of mixed calls are bit-identical' 0 '^# 2 runs are bit-identical$' \
    "$perf" --ranks-per-node 2 --mix 30 --runs 2 --skew 200 --shapes 1x1x1,33x40x50,0x3x4,3x4x0
expect 'a rank with other bits is noticed' 1 'rank 1 holds other bits than rank 0' \
    env FAKE_GEMMAR=bits "$perf" --ranks-per-node 2 --check --shapes 8x8x8 "${quick[@]}"
expect 'and counted' 1 '^# FAILED: 1 wrong elements$' \
    env FAKE_GEMMAR=bits "$perf" --ranks-per-node 2 --mix 1 --shapes 8x8x8
expect 'a byte too many on the wire is noticed' 1 'the formula says 0' \
    env FAKE_GEMMAR=wire "$perf" --ranks-per-node 2 --shapes 8x8x8 "${quick[@]}"
expect 'a failed call is named' 1 'rank 1: gemmar_fused: .*call 2 was asked to fail' \
    env FAKE_GEMMAR=fail "$perf" --ranks-per-node 2 --check --shapes 8x8x8 "${quick[@]}"
expect 'a killed rank is named, the rest ends' 1 'rank 1 was ended by signal 9' \
    env FAKE_GEMMAR=die "$perf" --ranks-per-node 4 --check --shapes 8x8x8 --timeout 2 "${quick[@]}"

expect 'a build without CUDA says so' 1 'built without CUDA, cuBLASLt and NCCL' \
    "$perf" --device cuda --ranks-per-node 2
once 'a build without CUDA says so'
expect 'version and commit' 0 '^gemmar_perf [0-9.]+[+][0-9a-z]+$' "$perf" --version
expect 'help says what varies' 0 'other thread counts and stages on every rank' "$perf" --help
expect 'unknown flag' 2 "unknown option '--frob'" "$perf" --frob
once 'unknown flag'
expect 'negative size' 2 "'-4' is not a list of sizes" "$perf" --ranks-per-node 2 -m -4
once 'negative size'
expect 'no verbs device' 1 'no verbs device.*--hca soft' \
    env FAKE_GEMMAR=device "$perf" --nodes 2 -m 8 -n 8 -k 8
once 'no verbs device'
expect 'no such file' 2 'cannot open /nonexistent.npy' "$perf" --input-a /nonexistent.npy
once 'no such file'
npy "$work/a.npy" '<f4' 4 8 128
npy "$work/b.npy" '<f4' 9 5 180
npy "$work/d.npy" '<f8' 8 5 320
npy "$work/good.npy" '<f4' 8 5 160
expect 'operands from files' 0 '^      4       5       8 .* 0 ' "$perf" --ranks-per-node 2 --check \
    --input-a "$work/a.npy" --input-b "$work/good.npy" "${quick[@]}"
expect 'operands that do not fit' 1 'has the shape \(9, 5\), want \(8, 5\)' \
    "$perf" --ranks-per-node 2 --input-a "$work/a.npy" --input-b "$work/b.npy" "${quick[@]}"
once 'operands that do not fit'
expect 'wrong type' 2 "elements of type '<f8'" "$perf" --input-b "$work/d.npy"
once 'wrong type'

expect 'json' 0 '^# ok$' \
    "$perf" --ranks-per-node 2 --check --shapes 8x8x8,9x9x9 --json "$work/j" "${quick[@]}"
expect 'json has one object per line' 0 '^2$' grep -c '^{.*}$' "$work/j"
if command -v python3 >/dev/null; then
    expect 'json parses' 0 '^0 nn None$' python3 -c '
import json, sys
for line in open(sys.argv[1]):
    x = json.loads(line)
    print(x["wrong"], x["layout"], x["speedup"])' "$work/j"
fi
# shellcheck disable=SC2016
expect 'output that cannot be written' 1 'the output cannot be written' \
    sh -c '"$0" --ranks-per-node 2 --shapes 8x8x8 >/dev/full' "$perf"
expect 'json cannot be written' 1 'cannot write /nonexistent/j' \
    "$perf" --json /nonexistent/j --shapes 8x8x8

# as single ranks of another launcher, with command lines of their own
port=$((20000 + RANDOM % 10000))
alone() { # RANK ARGUMENTS...
    local rank=$1
    shift
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 60 "$perf" "$@"
}
alone 1 --check --shapes 8x8x8 "${quick[@]}" >"$work/one" 2>&1 &
expect 'ranks started by torchrun' 0 '^# ok$' \
    env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$perf" --check --shapes 8x8x8 "${quick[@]}"
wait
port=$((port + 1))
alone 1 --shapes 8x8x9 >"$work/one" 2>&1 &
expect 'ranks with other shapes' 2 'rank 1 was started with shapes that differ' \
    env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$perf" --shapes 8x8x8
once 'ranks with other shapes'
wait
port=$((port + 1))
expect 'rank 0 gives up on a rank that never starts' 1 '1 of 2 ranks came to .* within 1.0 s' \
    env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$perf" --shapes 8x8x8 --timeout 1
expect 'a rank gives up on a rank 0 that never starts' 1 'rank 0 does not answer at' \
    env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$perf" --shapes 8x8x8 --timeout 1
expect 'a rank that stands still between calls is lost after the timeout, not ten minutes' 1 \
    'lost rank [01] .*: Connection timed out' \
    "$perf" --ranks-per-node 2 --skew 8000000 --iters 1 --warmup 0 --timeout 1 --seed 1 --shapes 8x8x8

expect 'a rank that checks for long is waited for' 0 '^# ok$' \
    "$perf" --ranks-per-node 2 --check --shapes "1x${size}x$size" --iters 1 --warmup 0 --timeout "$short"

# a stopped rank is lost after the timeout, also where the others wait for its checks, and the
# launcher waits for it no longer than for the others
number=$((number + 1))
"$perf" --ranks-per-node 3 --check --shapes 64x64x64 --iters 1000000 --timeout 1 >"$work/out" 2>&1 &
parent=$!
sleep 1
victim=$(ps -o pid= --ppid $parent | sed -n 3p)
started=$SECONDS
kill -STOP "$victim"
wait $parent
status=$?
if [ $status -eq 1 ] && [ $((SECONDS - started)) -lt 20 ] && ! kill -0 "$victim" 2>/dev/null &&
    grep -q 'gemmar_perf: rank [01]: lost rank 2 .*: Connection timed out' "$work/out" &&
    grep -q 'after the failure (stopped by a signal): killed' "$work/out"; then
    echo "ok $number - a stopped rank is named and killed"
else
    bad=1
    echo "not ok $number - a stopped rank is named and killed"
    echo "# status $status, $((SECONDS - started)) s"
    sed 's/^/# /' "$work/out"
fi

# forecasts start nothing
expect 'a forecast for some numbers of nodes' 0 '^ +1024 .* net ' \
    "$perf" --simulate=1,2,1024 --shapes 8192x8192x512 --json "$work/forecast.json"
number=$((number + 1))
if grep -q '"nodes": 1024, "ranks_per_node": 8, "algo": "two-shot", "chosen": true' "$work/forecast.json" &&
    [ "$(wc -l <"$work/forecast.json")" -eq 5 ]; then
    echo "ok $number - and its JSON"
else
    bad=1
    echo "not ok $number - and its JSON"
fi
sed 's/"forecast": true/"device": "cuda"/' "$work/forecast.json" >"$work/measured.json"
expect 'forecasts beside what they forecast' 0 '^# fused: 5 calls, .* the largest [+-]0.0%$' \
    "$perf" --simulate --against "$work/measured.json"
expect 'a file without measured calls' 1 'no timed call of GPUs' \
    "$perf" --simulate --against "$work/forecast.json"
expect 'a machine that is none' 2 "machine: 'nic_gbit=1' is no name=value" \
    "$perf" --simulate --machine nic_gbit=1
expect 'a machine without a simulation' 2 'machine goes with --simulate' "$perf" --machine nic_us=1
expect 'a simulation makes no call' 2 'drop --check' "$perf" --simulate --check

# an interrupt ends everything
number=$((number + 1))
"$perf" --ranks-per-node 2 --shapes 64x64x64 --iters 1000000 >"$work/out" 2>&1 &
parent=$!
sleep 1
children=$(ps -o pid= --ppid $parent)
kill -INT $parent
wait $parent
status=$?
left=$(for c in $children; do kill -0 "$c" 2>/dev/null && echo "$c"; done)
if [ "$status" -eq 130 ] && [ -n "$children" ] && [ -z "$left" ]; then
    echo "ok $number - an interrupt ends all ranks"
else
    bad=1
    echo "not ok $number - an interrupt ends all ranks"
    echo "# status $status, children $children, left $left"
fi
echo "1..$number"
exit $bad
