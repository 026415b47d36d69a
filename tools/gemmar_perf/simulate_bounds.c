// SPDX-License-Identifier: Apache-2.0
// What a simulated call is compared with.
#include "tools/gemmar_perf/simulate_bounds.h"

static double max(double a, double b)
{
    return a > b ? a : b;
}

static double output_bytes(const struct gemmar_sim_call *call)
{
    return (double)call->m * (double)call->n * gemmar_dtype_bytes(call->dtype);
}

static double memory_us(const struct gemmar_sim_machine *machine,
                        const struct gemmar_sim_call *call)
{
    double m = (double)call->m, n = (double)call->n, k = (double)call->k;

    return gemmar_dtype_bytes(call->dtype) * (m * k + k * n + m * n) / (machine->hbm_gbs * 1e3);
}

static double flop_us(const struct gemmar_sim_machine *machine, const struct gemmar_sim_call *call)
{
    return 2.0 * (double)call->m * (double)call->n * (double)call->k / (machine->gemm_tflops * 1e6);
}

struct gemmar_sim_bounds gemmar_sim_bounds(const struct gemmar_sim_machine *machine,
                                           const struct gemmar_sim_call *call, uint32_t algo)
{
    double slice = output_bytes(call) / call->locals, nodes = call->nodes;
    double wire =
        algo == GEMMAR_ALGO_TWO_SHOT ? 2 * (nodes - 1) / nodes * slice : (nodes - 1) * slice;
    struct gemmar_sim_bounds b = {
        .gemm = flop_us(machine, call),
        .hbm = memory_us(machine, call),
        .nvlink = 2 * (call->locals - 1) * slice / (machine->nvlink_gbs * 1e3),
        .net = wire / gemmar_sim_line_rate(machine),
    };

    b.largest = max(max(b.gemm, b.hbm), max(b.nvlink, b.net));
    b.which = b.largest == b.gemm     ? "GEMM"
              : b.largest == b.net    ? "net"
              : b.largest == b.nvlink ? "NVLink"
                                      : "HBM";
    return b;
}

static double steps_of_tree(uint32_t nodes)
{
    double steps = 0;

    for (uint32_t reached = 1; reached < nodes; reached *= 2) {
        steps += 2;
    }
    return steps;
}

struct gemmar_sim_unfused gemmar_sim_unfused(const struct gemmar_sim_machine *machine,
                                             const struct gemmar_sim_call *call)
{
    double ranks = (double)call->nodes * call->locals, bytes = output_bytes(call);
    double around = 2 * (ranks - 1) / ranks * bytes, steps = 2 * (ranks - 1);
    double net_steps = call->nodes > 1 ? steps / call->locals : 0;
    double net_us = machine->nic_us + machine->nccl_net_us;
    double node_rate = call->locals * gemmar_sim_wire_rate(machine);
    double inside = call->locals > 1 ? around / (machine->nccl_gbs * 1e3) : 0;
    double across = call->nodes < 2 ? 0 : call->nodes == 2 ? bytes : 2 * bytes;
    struct gemmar_sim_unfused u = {.gemm = max(flop_us(machine, call), memory_us(machine, call)) +
                                           machine->gemm_us};

    if (ranks > 1) {
        u.ring = machine->nccl_us + max(inside, call->nodes > 1 ? around / node_rate : 0) +
                 net_steps * net_us + (steps - net_steps) * machine->nccl_hop_us;
        u.tree = machine->nccl_us + max(inside, across / node_rate) +
                 steps_of_tree(call->nodes) * net_us +
                 2 * (call->locals - 1) * machine->nccl_hop_us;
    }
    u.total = u.gemm + (u.ring < u.tree ? u.ring : u.tree);
    return u;
}
