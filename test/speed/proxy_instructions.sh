#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Instructions of the proxy per command (a data write and its stamp), the provider not counted.
# usage: proxy_instructions.sh PROXY_NULL [LIMIT [COMMANDS [BATCH [QUEUE_PAIRS]]]]
set -euo pipefail
program=$1 limit=${2:-400} commands=${3:-40000} batch=${4:-8} queue_pairs=${5:-1}

if ! command -v valgrind >/dev/null; then
    echo 'proxy_instructions: valgrind is not installed, skipped'
    exit 77
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
valgrind --quiet --tool=callgrind --toggle-collect=gemmar_proxy_turn --callgrind-out-file="$out" \
    "$program" "$commands" "$batch" "$queue_pairs"

# Self cost of each function: the lines after "fn=", except the one that follows "calls=".
awk -v commands="$commands" -v limit="$limit" -v batch="$batch" -v qps="$queue_pairs" '
    /^c?fn=/ { # "(7) name" at its first mention, "(7)" later
        id = $0; sub(/^c?fn=/, "", id); name = id
        sub(/ .*/, "", id); sub(/^[^ ]* ?/, "", name)
        if (name != "") names[id] = name
        if ($0 ~ /^fn=/) fn = names[id]
        next
    }
    /^calls=/ { skip = 1; next }
    /^[+*0-9-]/ { if (skip) skip = 0; else cost[fn] += $2 }
    END {
        for (f in cost) {
            if (f ~ /^null_/) provider += cost[f]; else own += cost[f]
            if (cost[f] >= commands) printf "%8.1f  %s\n", cost[f] / commands, f
        }
        printf "proxy: batch %d, queue pairs %d: %.1f instructions per command, at most %d; provider %.1f\n",
            batch, qps, own / commands, limit, provider / commands
        exit own == 0 || own / commands > limit
    }' "$out"
