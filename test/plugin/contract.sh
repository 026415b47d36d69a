#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contract.sh LIBDIR SOFTHCA ib|roce DEVICES PROGRAM...: a program over softhca, on a fabric of its
# own. roce, and more than one device: with a made-up sysfs, which needs a mount namespace.
set -eu
lib=$1 softhca=$2 link=$3 devices=$4
shift 4
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export SOFTHCA_FABRIC="$dir" SOFTHCA_LINK="$link" SOFTHCA_DEVICES="$devices"
export LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
case " $* " in
*' nccl '*) export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}" ;; # NCCL's own
esac
if [ "$link" = roce ] || [ "$devices" -gt 1 ]; then
    if ! unshare -rm true 2>/dev/null; then
        echo '1..0 # SKIP no mount namespace can be made here'
        exit 0
    fi
    set -- "$softhca" run -n "$devices" -- "$@"
fi
"$@"
