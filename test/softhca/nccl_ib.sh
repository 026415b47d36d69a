#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# nccl_ib.sh LIBDIR NCCL_IB SOFTHCA: NCCL's own transport on InfiniBand, with several queue pairs,
# and, where a mount namespace can be made, on RoCE with a made-up sysfs.
set -eu
lib=$1 prog=$2 softhca=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# a sanitized library inside of an unsanitized NCCL: its runtime comes first, in that program only
san=$(ldd "$lib/libibverbs.so.1" | awk '/lib[at]san/ { print $3 }')
set -- "$prog"
[ -z "$san" ] || set -- env LD_PRELOAD="$san" ASAN_OPTIONS=detect_leaks=0 "$prog"
SOFTHCA_FABRIC=$dir/ib "$@"
SOFTHCA_FABRIC=$dir/qps NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_SPLIT_DATA_ON_QPS=1 "$@"
if unshare -rm true 2>/dev/null; then
    SOFTHCA_FABRIC=$dir/roce SOFTHCA_LINK=roce "$softhca" run -n 2 -- "$@"
fi
