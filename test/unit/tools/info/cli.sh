#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cli.sh GEMMAR_INFO FAKE_CUDA FAKE_NCCL FAKE_PLUGIN EMPTY_LIBRARY PLUGIN LIBGEMMAR OTHER_PLUGIN
# GPU_CODE: gemmar_info without any device, as a user sees it; prints TAP. GPU_CODE: is there any in
# LIBGEMMAR, yes or no?
set -u
info=$(realpath "$1") cuda=$(realpath "$2") nccl=$(realpath "$3") plugin=$(realpath "$4")
empty=$(realpath "$5") real=$(realpath "$6") libgemmar=$(realpath "$7")
other=$(realpath "$8") gpu_code=$9
# shellcheck source=test/unit/tools/info/lib.sh
. "$(dirname "$0")/lib.sh"
mkdir "$work/nccl" "$work/cuda" "$work/plugin" "$work/symlink" "$work/real" "$work/empty"
ln -s "$nccl" "$work/nccl/libnccl.so.2"
ln -s "$cuda" "$work/cuda/libcuda.so.1"
ln -s "$plugin" "$work/plugin/libnccl-net-gemmar.so"
ln -s "$other" "$work/plugin/libnccl-net-other.so"
ln -s "$plugin" "$work/symlink/libnccl-net.so"
ln -s "$real" "$work/real/libnccl-net-gemmar.so"
ln -s "$libgemmar" "$work/real/libgemmar.so.0"
# no device, whatever this machine has
blind=(env GEMMAR_IBVERBS=/nonexistent/libibverbs.so.1 "$info" --root "$work/empty")

expect 'help' 0 '^usage: gemmar_info' "$info" --help
also '^exit status: 0'
expect 'version' 0 '^gemmar_info [0-9]' "$info" --version
expect 'an option that is none' 2 '^usage: gemmar_info' "$info" --frobnicate
expect 'an argument' 2 'no argument is taken: here' "$info" here
expect 'a full disk' 3 'the report is not complete' \
    sh -c "GEMMAR_IBVERBS=/nonexistent '$info' >/dev/full"

expect 'without libibverbs' 1 'cannot load /nonexistent/libibverbs.so.1' "${blind[@]}"
also 'To do: install rdma-core'
also 'Unknown without libibverbs'
also 'No NVIDIA GPU'
also '^[0-9]+ problems?$'
json 'without libibverbs, for machines' 1 \
    'not d["rdma_usable"] and d["verbs"]["found"] is False and d["problem_count"] == len(d["problems"])' \
    "${blind[@]}" --json
expect 'a library without verbs' 1 'has no ibv_get_device_list@IBVERBS_1.1' \
    env GEMMAR_IBVERBS="$empty" "$info"

# knobs
expect 'bad values are all told' 1 "NCCL_IB_TIMEOUT value '77' is outside 0..31" \
    env NCCL_IB_TIMEOUT=77 NCCL_IB_TC=many "$info" --env
also "NCCL_IB_TC value 'many' is not an integer"
also '^2 problems$'
expect 'an unknown knob is a problem that stops nothing' 0 'GEMMAR_TIMEOT is set, is not known' \
    env GEMMAR_TIMEOT=3 "$info" --env
json "a variable of gemmar_perf is none" 0 'd["problem_count"] == 0 and d["environment"]["rows"] == []' \
    env GEMMAR_PERF_NIC_GBS=50 "$info" --env --json
expect 'so is one of NCCL_IB_' 0 'NCCL_IB_NONE is set, is not known' env NCCL_IB_NONE=3 "$info" --env
json 'a variable of NCCL that is ignored is none' 0 \
    'd["problem_count"] == 0 and [(r["variable"], r["known"], r["remark"]) for r in d["environment"]["rows"]]
     == [("NCCL_IB_GDR_LEVEL", True, "NCCL_NET_GDR_LEVEL has replaced it")]' \
    env NCCL_IB_GDR_LEVEL=SYS "$info" --env --json
printf 'NCCL_IB_SL=3\nNCCL_IB_FILE=1\n' >"$work/conf"
json 'values and their origins' 0 \
    '{"NCCL_IB_SL": ("3", "file"), "NCCL_IB_TC": ("8", "environment"), "GEMMAR_TIMEOUT": ("0.5", "environment"),
      "GEMMAR_SIGNAL": ("imm", "environment"), "NCCL_IB_HCA": (None, "default")}.items()
     <= {r["variable"]: (r["value"], r["origin"]) for r in d["knobs"]["rows"]}.items()' \
    env NCCL_CONF_FILE="$work/conf" NCCL_IB_TC=8 GEMMAR_TIMEOUT=0.5 GEMMAR_SIGNAL=imm "$info" --env --json
expect 'an unknown variable of a file' 0 'NCCL_IB_FILE is set, is not known' \
    env NCCL_CONF_FILE="$work/conf" "$info" --env
json 'bytes that are no text' 0 'd["environment"]["rows"][0]["value"] == "a\"\ufffd\x01"' \
    env NCCL_IB_NONE=$'a"\xff\x01' "$info" --env --json

# the interface for set-up
expect 'an interface by name' 1 'interface +lo' env NCCL_SOCKET_IFNAME==lo "${blind[@]}"
expect 'no interface of that name' 1 'NCCL_SOCKET_IFNAME.*RDMA stops here' \
    env NCCL_SOCKET_IFNAME==none0 "${blind[@]}"

# GPUs
make_root "$work/root"
expect 'a GPU without a driver' 1 '0000:1b:00.0 +NVIDIA Test +1 +- ' \
    env GEMMAR_IBVERBS=/nonexistent "$info" --root "$work/root"
mkdir -p "$work/root/sys/kernel/mm/memory_peers/amdkfd"
echo 1.0 >"$work/root/sys/kernel/mm/memory_peers/amdkfd/version"
expect "another maker's peer memory" 1 '0000:1b:00.0 +NVIDIA Test' \
    env GEMMAR_IBVERBS=/nonexistent "$info" --root "$work/root"
never 'amdkfd'
mkdir -p "$work/root/sys/kernel/mm/memory_peers/nv_mem"
echo 1.3 >"$work/root/sys/kernel/mm/memory_peers/nv_mem/version"
expect 'a GPU, its driver and peer memory' 1 '0000:1b:00.0 +NVIDIA Test +1 +yes +no +owner' \
    env LD_LIBRARY_PATH="$work/cuda" GEMMAR_IBVERBS=/nonexistent "$info" --root "$work/root"
also 'driver api +CUDA 13.2'
also 'memory_peers/nv_mem/version, version 1.3'
json 'a GPU that sysfs does not show' 1 'd["gpus"]["found"] == 1 and d["gpus"]["rows"][0]["dma_buf"]' \
    env LD_LIBRARY_PATH="$work/cuda" FAKE_CUDA_DMABUF=1 "${blind[@]}" --json

# NCCL and the libraries
expect 'no NCCL' 1 'No /nonexistent/libnccl.so.2' "${blind[@]}" --nccl /nonexistent/libnccl.so.2
also 'takes from plugin +-'
export LD_LIBRARY_PATH=$work/nccl:$work/plugin
takes() { # VERSION NET
    json "NCCL $1 takes v$2" 1 'd["nccl"]["takes_from_plugin"] == "ncclNetPlugin_v'"$2"'"' \
        env FAKE_NCCL_VERSION="$1" "${blind[@]}" --json
}
takes 21304 6
takes 22003 8
takes 22809 11
takes 23003 11 # this plugin has no v12
expect 'NCCL that is too old' 1 'this NCCL is too old for plugins' \
    env FAKE_NCCL_VERSION=2804 "${blind[@]}"
also 'version +2\.8\.4'
expect 'a plugin of another build' 1 "is of build 'another build', this program of" "${blind[@]}"
expect 'NCCL_NET that names another' 1 'NCCL_NET is IB: NCCL will not use this plugin' \
    env NCCL_NET=IB "${blind[@]}"
forgets='this NCCL runs without the plugin in communicators made after'
asked() { # NCCL_NET_PLUGIN REASON: what NCCL does not come to this plugin by
    expect "NCCL_NET_PLUGIN $1" 1 "NCCL_NET_PLUGIN is '$1': NCCL will not use this plugin \\($2" \
        env NCCL_NET_PLUGIN="$1" "${blind[@]}"
    never "$forgets"
}
asked /nonexistent/libnccl-net-gemmar.so '/nonexistent/libnccl-net-gemmar.so: .*No such file'
asked gemar 'libnccl-net-gemar.so: .*No such file'
asked libnccl-net-gemar.so 'libnccl-net-gemar.so: .*No such file'
asked "$work" ".*Is a directory|$work: "
asked "$libgemmar" '.* is no network plugin'
asked none 'no library is named'
asked other,gemmar 'other is another plugin'
ways() { # NCCL_NET_PLUGIN: it leads NCCL to this plugin
    json "NCCL_NET_PLUGIN $1" 1 'all("NCCL_NET_PLUGIN is" not in p["problem"] for p in d["problems"])' \
        env NCCL_NET_PLUGIN="$1" "${blind[@]}" --json
}
ways gemmar
ways libnccl-net-gemmar.so
ways "$plugin"
ways "gemar,$libgemmar,gemmar"
echo NCCL_NET_PLUGIN=gemar >"$work/plugin.conf"
expect 'NCCL_NET_PLUGIN of a file' 1 "NCCL_NET_PLUGIN is 'gemar': NCCL will not" \
    env NCCL_CONF_FILE="$work/plugin.conf" "${blind[@]}"
printf 'NCCL_NET_PLUGIN=gemmar\nNCCL_NET_PLUGIN_REF_COUNT=1\n' >"$work/plugin.conf"
expect '... with the remedy' 1 'plugin asked for +gemmar' \
    env NCCL_CONF_FILE="$work/plugin.conf" "${blind[@]}"
never "$forgets|NCCL_NET_PLUGIN is"
expect 'a NCCL that forgets the name' 1 "$forgets" env NCCL_NET_PLUGIN=gemmar "${blind[@]}"
also 'NCCL_NET_PLUGIN_REF_COUNT=1, or make libnccl-net.so a symlink to libnccl-net-gemmar.so'
expect '... with the first remedy' 1 'takes from plugin +ncclNetPlugin_v11' \
    env NCCL_NET_PLUGIN=gemmar NCCL_NET_PLUGIN_REF_COUNT=1 "${blind[@]}"
never "$forgets"
expect '... with the second remedy' 1 'takes from plugin +ncclNetPlugin_v11' \
    env LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$work/symlink" NCCL_NET_PLUGIN=gemmar "${blind[@]}"
never "$forgets"
for version in 22605 22707 23003; do
    expect "NCCL $version remembers" 1 'takes from plugin' \
        env FAKE_NCCL_VERSION=$version NCCL_NET_PLUGIN=gemmar "${blind[@]}"
    never "$forgets"
done
export LD_LIBRARY_PATH=$work/nccl:$work/real
json 'two libraries of one build' 1 'd["libraries"]["one_build"] and d["libraries"]["plugin_on_search_path"]' \
    "${blind[@]}" --json
expect 'GPU code in the library' 1 "^  gpu code +$gpu_code\$" "${blind[@]}"
takes 22809 11
takes 23003 12
export LD_LIBRARY_PATH=$work/nccl
expect 'a plugin that is not on the search path' 1 'NCCL will not find .*/libnccl-net-gemmar.so by its name' \
    env GEMMAR_TRANSPORT="$real" "${blind[@]}"
expect '... asked for by its path' 1 "^  plugin  +$real" env NCCL_NET_PLUGIN="$real" "${blind[@]}"
never 'NCCL will not'
also 'plugin on search path +no'
finish
