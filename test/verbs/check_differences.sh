#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The names in differences.md are those that the program knows.
# usage: check_differences.sh VERBS_CONFORMANCE DIFFERENCES_MD
set -eu
known=$("$1" --differences | sort)
listed=$(sed -n 's/^| \([A-Z][A-Z0-9_]*\) |.*/\1/p' "$2" | sort)
if [ "$known" != "$listed" ]; then
    printf 'the program knows:\n%s\ndifferences.md lists:\n%s\n' "$known" "$listed"
    exit 1
fi
