#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# symbols.sh OURS THEIRS: every symbol@version of the installed libibverbs is in ours, with the same
# default version. Programs are linked BIND_NOW: one missing name stops them.
set -eu
list() {
    LC_ALL=C readelf --dyn-syms -W "$1" |
        awk '$7 != "UND" && $7 != "ABS" && $8 ~ /@/ { print $8 }' | sort
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
list "$1" > "$tmp/ours"
list "$2" > "$tmp/theirs"
[ -s "$tmp/theirs" ]
missing=$(comm -13 "$tmp/ours" "$tmp/theirs")
extra=$(comm -23 "$tmp/ours" "$tmp/theirs" | grep -v '@@SOFTHCA_1$' || true)
[ -z "$missing$extra" ] || {
    printf 'missing: %s\nextra: %s\n' "$missing" "$extra"
    exit 1
}
