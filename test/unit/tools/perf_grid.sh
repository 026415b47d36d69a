#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# perf_grid.sh GEMMAR_PERF: the whole data path over softhca, as gemmar_perf checks it; prints TAP.
set -u
perf=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0 bad=0

report() { # GOOD NAME TEXT...
    number=$((number + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $number - $2"
    else
        bad=1
        echo "not ok $number - $2"
        shift 2
        echo "# $*"
        sed 's/^/# /' "$work/out"
    fi
}

# NAME STATUS PATTERN COMMAND...: the exit status, and a line of the output
expect() {
    local name=$1 status=$2 pattern=$3 got
    shift 3
    timeout -k 5 200 "$@" >"$work/out" 2>&1
    got=$?
    [ "$got" -eq "$status" ] && grep -Eq -- "$pattern" "$work/out"
    report $? "$name" "status $got, want $status, and a line like: $pattern"
}

soft=("$perf" --hca soft --timeout 60)
shapes=1x1x1,128x256x64,129x257x65,0x8x8,8x0x8,8x8x0
for grid in '2 1' '2 2' '3 1' '4 2' '1 4'; do
    read -r nodes ranks <<<"$grid"
    expect "$nodes x $ranks, every shape" 0 '^# ok$' "${soft[@]}" --check --nodes "$nodes" \
        --ranks-per-node "$ranks" --shapes $shapes,200x333x77 --iters 2 --warmup 1
done
for algo in direct two-shot; do
    for dtype in fp16 fp32; do
        expect "3 x 2 $algo $dtype nt" 0 '^# ok$' "${soft[@]}" --check --nodes 3 --ranks-per-node 2 \
            --algo $algo --dtype $dtype --layout nt --shapes $shapes --iters 2 --warmup 0
    done
    expect "mixed calls, 2 x 2 $algo" 0 '^# 2 runs are bit-identical$' "${soft[@]}" --nodes 2 \
        --ranks-per-node 2 --algo $algo --mix 60 --skew 1000 --local-facts vary --runs 2 \
        --shapes $shapes
    # 8 nodes: bytes on the wire within 1% of (N-1) S and 2 (N-1) / N S where the tiles divide
    expect "wire bytes of 8 nodes, $algo" 0 '^ +1024 .* (1\.00[0-9]+|0\.99[0-9]+) +- ' "${soft[@]}" \
        --nodes 8 --algo $algo --shapes 1024x1024x8 --iters 1 --warmup 0
done
expect 'mixed calls, 3 x 1, immediates' 0 '^# ok$' "${soft[@]}" --nodes 3 --mix 40 --skew 500 \
    --signal imm --shapes $shapes
for epoch in 2147483645 4294967293; do
    expect "mixed calls from epoch $epoch" 0 '^# ok$' env GEMMAR_EPOCH_START=$epoch "${soft[@]}" \
        --nodes 2 --ranks-per-node 2 --mix 24 --shapes $shapes
done

number=$((number + 1))
if grep -q '^gemmar_perf:' "$work/out"; then
    bad=1
    echo "not ok $number - no unexpected warning"
    sed 's/^/# /' "$work/out"
else
    echo "ok $number - no unexpected warning"
fi

# local facts change no bit
sum() { # ARGUMENTS...
    timeout 100 "${soft[@]}" --nodes 2 --ranks-per-node 2 --mix 20 --shapes $shapes "$@" 2>&1 |
        tee "$work/out" | sed -n 's/.*checksum //p'
}
same=$(sum --local-facts same) varied=$(sum --local-facts vary)
[ -n "$same" ] && [ "$same" = "$varied" ]
report $? 'local facts change no bit' "checksums '$same' and '$varied'"

expect 'locked memory is limited' 1 'gemmar_perf: .*MEMLOCK' \
    env SOFTHCA_NO_IPC_LOCK=1 prlimit --memlock=65536:65536 "${soft[@]}" --nodes 2 --shapes 8x8x8
mkdir -m 700 "$work/fabric"
head -c 100 /dev/zero >"$work/fabric/fabric"
expect 'a fabric that another version left' 1 'another version of softhca; remove the folder' \
    env SOFTHCA_FABRIC="$work/fabric" "${soft[@]}" --nodes 2 --shapes 8x8x8
expect 'no verbs device' 1 'gemmar_perf: .*no usable verbs device.*--hca soft' \
    env NCCL_IB_HCA==none9 "$perf" --nodes 2 --shapes 8x8x8

# one rank is killed, or stopped: the others say who, within the timeout, and nothing is left
disturb() { # NAME SIGNAL PATTERN
    local parent children victim started status left
    "$perf" --hca soft --timeout 4 --nodes 2 --ranks-per-node 2 --shapes 128x256x64 \
        --iters 1000000 --warmup 0 >"$work/out" 2>&1 &
    parent=$!
    for _ in $(seq 100); do
        grep -q '^# *M ' "$work/out" && break
        sleep 0.1
    done
    sleep 0.5
    children=$(ps -o pid= --ppid $parent)
    victim=$(echo "$children" | tail -n 1)
    started=$(date +%s)
    kill "-$2" "$victim"
    wait $parent
    status=$?
    left=$(for c in $children; do kill -0 "$c" 2>/dev/null && echo "$c"; done)
    [ $status -eq 1 ] && [ -z "$left" ] && [ $(($(date +%s) - started)) -lt 40 ] &&
        grep -Eq "$3" "$work/out"
    report $? "$1" "status $status, left '$left', want a line like: $3"
}
disturb 'a killed rank' KILL 'gemmar_perf: rank [0-2]: gemmar_fused: .*rank 3'
disturb 'a stopped rank' STOP 'gemmar_perf: rank [0-2]: gemmar_fused: .*rank 3'
echo "1..$number"
exit $bad
