#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_mpi.sh LAUNCH PROGRAM: the shim's test with four processes, then with one that ends early.
set -u
launch=$1 program=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
timeout 60 "$launch" -n 4 "$program" > "$dir/out"
status=$?
grep -v '^1\.\.' "$dir/out"
n=$(grep -c '^\(not \)\?ok' "$dir/out")

check() { # STATUS NAME
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
    fi
}

check "$status" 'the launcher ends with 0'
timeout 30 "$launch" -n 4 "$program" fail 2 > /dev/null 2>&1
status=$?
check "$([ $status = 1 ] || [ $status = 3 ]; echo $?)" 'a failed process ends all'
timeout 60 "$launch" -n 2 -o "$dir/logs" -x 'NODE=node-%r' printenv NODE
check "$([ "$(cat "$dir/logs/rank.0" "$dir/logs/rank.1")" = 'node-0
node-1' ]; echo $?)" 'variables and output for each rank'
echo "1..$n"
