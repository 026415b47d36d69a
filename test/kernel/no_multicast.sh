#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# no_multicast.sh CHECKCOMM: with NCCL_NVLS_ENABLE=0, neither NCCL nor gemmar makes a multicast object, whatever a
# communicator of GPUs does. Needs two GPUs; checkcomm finds its libraries by LD_LIBRARY_PATH.
set -eu
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
for test in registered growth; do
    NCCL_NVLS_ENABLE=0 NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NVLS,REG NCCL_DEBUG_FILE="$logs/%p" \
        "$1" --processes --only="$test"
done
if ! grep -q 'Symmetric VA size' "$logs"/*; then
    echo "NCCL's log does not show the windows"
    exit 1
fi
if grep -iE 'multicast (group|memory)|multicast support is available|[1-9][0-9]* nvls channels' "$logs"/*; then
    echo "a multicast object was made"
    exit 1
fi
echo "no multicast object in $(cat "$logs"/* | wc -l) lines of NCCL's"
