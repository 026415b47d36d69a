#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# nvcc_object.sh REPORT NVCC ARGUMENT...: call the compiler; what it and the assembler say goes to REPORT (registers,
# spills, serialised tensor core instructions: test/kernel/no_spills.sh reads it), warnings and errors to stderr as well.
set -u
report=$1
shift
"$@" -Xptxas -v >"$report" 2>&1
status=$?
if [ $status -ne 0 ]; then
    cat "$report" >&2
else
    grep -iE -A 5 'warning|serialized' "$report" >&2
fi
exit $status
