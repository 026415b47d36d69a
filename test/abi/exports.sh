#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A library exports exactly the symbols of a list, and carries its SONAME.
# usage: exports.sh LIBRARY LIST SONAME
set -eu
library=$1 list=$2 soname=$3

have=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)
want=$(grep -v '^#' "$list" | sort)
if [ "$have" != "$want" ]; then
    echo "exports of $library differ from $list"
    echo "--- exported"
    echo "$have"
    echo "--- listed"
    echo "$want"
    exit 1
fi
if ! readelf -d "$library" | grep -q "(SONAME).*\[$soname\]"; then
    echo "$library has not the SONAME $soname"
    exit 1
fi
if ! readelf -d "$library" | grep -q 'NODELETE'; then
    echo "$library may be unloaded"
    exit 1
fi
