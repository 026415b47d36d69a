#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_pairs.sh PAIRS COMM_PAIRS FAKES: the comparison over a driver and an NCCL that pretend, where
# the plugin is twice as fast; then with wrong values, and with a rank that dies.
set -u
pairs=$1 program=$2 fakes=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0

check() { # STATUS NAME
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        sed 's/^/# /' "$dir/log"
    fi
}

run() { # NAME ARGUMENTS...
    name=$1
    shift
    timeout 60 python3 -B "$pairs" --program "$program" --softhca "$fakes" --out "$dir/$name" \
        --pairs 2 --block-ms 2 --timeout 30 "$@" > "$dir/log" 2>&1
}

run good --processes 2 --ranks 3 --gpus 2 --pin --range 8:64K:64
status=$?
check $status 'five collectives, right values, two processes'
python3 - "$dir/good/result.json" > "$dir/log" 2>&1 <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
assert sorted({e['test'] for e in d['summary']}) == ['all_gather', 'all_reduce', 'alltoall',
                                                     'reduce_scatter', 'sendrecv']
assert all(1.5 < e['ratio'] < 2.5 and e['pairs'] == 4 for e in d['summary']), d['summary']
assert {e['bytes'] for e in d['summary']} == {8, 512, 32768}
END
check $? 'twice as fast, from all pairs of all sizes'
run joined --processes 0 --join "$dir/good/result.json"
check "$([ "$(grep -c '"pairs": 4,' "$dir/joined/result.json")" = "$(grep -c '"pairs": 4,' "$dir/good/result.json")" ]
    echo $?)" 'an earlier result again'
FAKE_NCCL=wrong run wrong --processes 1 --tests sendrecv --range 8:8:2
status=$?
check "$([ $status = 1 ] && grep -q '"wrong": 2' "$dir"/wrong/*.rows; echo $?)" 'a wrong value in each rank'
FAKE_NCCL=dies run dies --processes 1 --tests all_reduce --range 8:8M:2
status=$?
check "$([ $status = 1 ] && grep -q 'status 3' "$dir/log"; echo $?)" 'a rank that ends takes the others with it'
echo "1..$n"
