#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# softhca.sh GEMMAR_INFO FAKE_CUDA FAKE_NCCL FAKE_PLUGIN LIBDIR SOFTHCA_RUN SOFTHCA_CTL: gemmar_info
# with two devices; prints TAP.
set -u
info=$(realpath "$1") cuda=$(realpath "$2") libdir=$(realpath "$5") run=$6 ctl=$7
# shellcheck source=test/unit/tools/info/lib.sh
. "$(dirname "$0")/lib.sh"
make_root "$work/root"
mkdir "$work/cuda"
ln -s "$cuda" "$work/cuda/libcuda.so.1"
export SOFTHCA_FABRIC=$work/fabric SOFTHCA_DEVICES=2 SOFTHCA_NODE=n
export LD_LIBRARY_PATH=$libdir:$work/cuda
unset SOFTHCA_LINK SOFTHCA_FAULTS SOFTHCA_PORTS
san=$(ldd "$libdir/libibverbs.so.1" | awk '/lib[at]san/ { print $3 }')
[ -z "$san" ] || export LD_PRELOAD=$san

expect 'InfiniBand' 0 'soft0 +1 +active +InfiniBand +400 Gb/s +4096 +[1-9][0-9]* .* yes$' "$info"
also 'soft1 +1 +active .* yes$'
also 'No RoCE port'
expect 'a GID index on InfiniBand' 0 'No RoCE port' env NCCL_IB_GID_INDEX=99 "$info"
also 'version +softhca'
export SOFTHCA_LINK=roce
expect 'RoCE' 0 'soft0 +1 +3 +RoCE v2 +[0-9.]+ +[^ ]+ +yes +routable address, RoCE v2' "$info"
also 'soft0 +1 +2 +RoCE v1 +[0-9.]+ +[^ ]+ +no$'
also 'soft1 +1 +1 +RoCE v2 +fe80::'
json 'RoCE, for machines' 0 \
    'd["rdma_usable"] and [r["used"] for r in d["devices"]["rows"]] == [True, True]
     and [r["index"] for r in d["gids"]["rows"] if r["chosen"]] == [3, 3]' "$info" --json
json 'one device by NCCL_IB_HCA' 0 \
    '[(r["used"], r["why_not"]) for r in d["devices"]["rows"]] == [(False, "not selected by NCCL_IB_HCA"), (True, "")]' \
    env NCCL_IB_HCA==soft1 "$info" --json
expect 'NCCL_IB_HCA that matches nothing' 1 "NCCL_IB_HCA 'mlx' selects none of: soft0:1 soft1:1" \
    env NCCL_IB_HCA=mlx "$info"
expect 'a port that is not there' 1 "NCCL_IB_HCA 'soft0:3' selects none of: soft0:1 soft1:1" \
    env NCCL_IB_HCA=soft0:3 "$info"
json '... for machines' 1 '[p["section"] for p in d["problems"] if p["stops_rdma"]] == ["devices"]' \
    env NCCL_IB_HCA=mlx "$info" --json
expect 'NCCL_IB_HCA that is not understood' 1 "NCCL_IB_HCA '=' names nothing" \
    env NCCL_IB_HCA== "$info"
expect 'NCCL_IB_DISABLE' 1 'NCCL_IB_DISABLE is 1 \(RDMA stops here\)' env NCCL_IB_DISABLE=1 "$info"
expect 'a GID index beyond the table' 1 \
    'soft0 port 1 has no usable GID: NCCL_IB_GID_INDEX 99 is beyond the table \(RDMA stops here\)' \
    env NCCL_IB_GID_INDEX=99 "$info"
also 'To do: unset NCCL_IB_GID_INDEX'
expect 'a GID index that is forced' 0 'soft0 +1 +1 +RoCE v2 +fe80.* yes +NCCL_IB_GID_INDEX says so' \
    env NCCL_IB_GID_INDEX=1 "$info"
expect 'an address range without a GID' 1 'no usable entry among .* in NCCL_IB_ADDR_RANGE' \
    env NCCL_IB_ADDR_RANGE=192.168.0.0/16 "$info"

expect 'a device that cannot be opened' 0 'soft0 cannot be opened: Permission denied' \
    env SOFTHCA_FAULTS='call name=open_device nth=1 errno=13' "$info"
never 'RDMA stops here'
expect 'no device that can be opened' 1 'soft0 cannot be opened: .*RDMA stops here' \
    env SOFTHCA_FAULTS='call name=open_device nth=1 count=9 errno=13' NCCL_IB_HCA=soft "$info"
# shellcheck disable=SC2317 # called by a shell of its own
locked() {
    ulimit -l 64
    SOFTHCA_NO_IPC_LOCK=1 "$info"
}
export -f locked
export info
expect 'RLIMIT_MEMLOCK of 64 KiB' 1 \
    'cannot register 4194304 bytes of memory: .*RLIMIT_MEMLOCK is 65536 bytes' bash -c locked
also 'memlock bytes +65536'
also 'ulimit -l unlimited'
# shellcheck disable=SC2016 # the inner shell expands it
expect 'a low limit on files' 0 'RLIMIT_NOFILE is 64' bash -c 'ulimit -n 64; "$info"'

# without a device: softhca refuses the number and shows none
none=(env SOFTHCA_DEVICES=0 "$info")
expect 'no device' 1 'there is no RDMA device \(RDMA stops here\)' "${none[@]}" --root "$work/root"
also 'LD_LIBRARY_PATH=build/tools/softhca/lib, or build/tools/gemmar_perf/gemmar_perf --hca soft'
mkdir -p "$work/hidden/sys/class/infiniband/mlx5_0"
expect 'a device that libibverbs does not show' 1 'the kernel has 1 RDMA device and libibverbs shows' \
    "${none[@]}" --root "$work/hidden"
also 'docker run --device /dev/infiniband'

# ports
timeout 20 "$ctl" port n 0 1 down >/dev/null
expect 'one port down' 0 'soft0 port 1 is selected and its state is down$' "$info"
timeout 20 "$ctl" port n 1 1 down >/dev/null
expect 'all ports down' 1 'soft1 port 1 is selected and its state is down \(RDMA stops here\)' "$info"
timeout 20 "$ctl" port n 0 1 up >/dev/null
timeout 20 "$ctl" port n 1 1 up >/dev/null

json 'two ports of a device' 0 \
    '[(r["device"], r["port"], r["dma_buf"]) for r in d["gpudirect"]["rows"]] == [("soft0", 1, True), ("soft0", 2, True), ("soft1", 2, True)]
     and len({r["guid"] for r in d["devices"]["rows"]}) == 4' \
    env SOFTHCA_FABRIC="$work/wide" SOFTHCA_PORTS=2 NCCL_IB_HCA=soft0,soft1:2 "$info" --json

# GPU memory
gpu=("$info" --root "$work/root" --json)
route() { # NAME ROUTE PROBLEMS-ABOUT-IT COMMAND...
    local name=$1 want=$2 problems=$3
    shift 3
    json "$name" 0 "[r['route'] for r in d['gpudirect']['rows']] == ['$want'] * 2 and
        sum(p['section'] == 'gpudirect' for p in d['problems']) == $problems" "$@"
}
route 'dma-buf of both' 'dma-buf' 0 env FAKE_CUDA_DMABUF=1 "${gpu[@]}"
route 'no dma-buf in the GPU' 'none' 2 env FAKE_CUDA_DMABUF=0 "${gpu[@]}"
route 'no dma-buf in the NIC' 'none' 2 env FAKE_CUDA_DMABUF=1 SOFTHCA_DMABUF=0 "${gpu[@]}"
mkdir -p "$work/root/sys/module/nvidia_peermem"
route 'peer memory' 'peer memory' 0 env FAKE_CUDA_DMABUF=0 "${gpu[@]}"
if unshare -m --propagation private true 2>/dev/null && [ -e /sys/bus/pci/devices/0000:00:00.0 ]; then
    json 'PCIe distance' 0 '[(r["device"], r["distance"]) for r in d["distances"]["rows"]][0] == ("soft0", "PHB")' \
        "$run" run -n 2 -- "${gpu[@]}"
else
    number=$((number + 1))
    echo "ok $number - PCIe distance # SKIP no mount namespace or no PCI here"
fi
json 'a distance that cannot be seen' 0 'd["distances"]["rows"][0]["direct_by_default"] is None' "${gpu[@]}"
finish
