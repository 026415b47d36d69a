#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# knobs_doc.sh PRINT_KNOBS TUNING_MD: the documented knobs are those of the table.
set -u
grep '^| [A-Z]*_' "$2" | diff - /dev/fd/3 3<<T
$("$1")
T
