// SPDX-License-Identifier: Apache-2.0
// The machine that --simulate models.
#include "tools/gemmar_perf/simulate_machine.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEMBER(name) #name, offsetof(struct gemmar_sim_machine, name)

/* "measured" is docs/results/fused-h200.json and docs/design.md, on 2 H200; "fitted" is chosen so
 * that the forecast meets that file; "assumed" was measured by nobody here. */
static const struct member {
    const char *name;
    size_t offset;
    double value, least, most;
    const char *source;
} members[] = {
    {MEMBER(sms), 132, 2, 1024, "H200"},
    {MEMBER(product), 1, 1e-3, 1e3, "the rates of the plan's table are measured ones"},
    {MEMBER(tile_us), 0.6, 0, 1e3, "fitted; the rates of the table have the rest"},
    {MEMBER(start_us), 7, 0, 1e3, "fitted"},
    {MEMBER(end_us), 2, 0, 1e3, "fitted"},
    {MEMBER(source_us), 1.4, 0, 1e3, "assumed: latency of a load of 32 KiB, and adding it"},
    {MEMBER(store_us), 1, 0, 1e3, "assumed"},
    {MEMBER(nvlink_gbs), 388, 1e-3, 1e6, "measured, copy engines"},
    {MEMBER(nvlink_us), 1.5, 0, 1e3, "fitted"},
    {MEMBER(sm_store_gbs), 51, 1e-3, 1e6, "measured"},
    {MEMBER(nics), 1, 1, 64, "HGX with 8 NICs"},
    {MEMBER(nic_gbits), 400, 1e-3, 1e6, "NDR"},
    {MEMBER(nic_share), 0.97, 1e-3, 1, "published: perftest reaches 48.5 of 50 GB/s"},
    {MEMBER(nic_us), 2, 0, 1e6, "assumed: small RDMA write"},
    {MEMBER(message_us), 0.12, 0, 1e3, "measured: 8.4 M commands/s through the ring"},
    {MEMBER(handover_us), 2, 0, 1e6, "the bar for push to posted"},
    {MEMBER(gemm_tflops), 785, 1e-3, 1e6, "measured"},
    {MEMBER(gemm_us), 5, 0, 1e3, "fitted"},
    {MEMBER(hbm_gbs), 4180, 1e-3, 1e6, "measured"},
    {MEMBER(nccl_gbs), 480, 1e-3, 1e6,
     "published: 8 H200, NVLS on; 367 without; measured 2 H200 without: 224"},
    {MEMBER(nccl_us), 8, 0, 1e3, "fitted"},
    {MEMBER(nccl_hop_us), 1, 0, 1e3, "assumed"},
    {MEMBER(nccl_net_us), 2, 0, 1e6, "assumed: as fast as our hand-over"},
};

#define MEMBERS (sizeof(members) / sizeof(members[0]))

static double *at(struct gemmar_sim_machine *machine, size_t i)
{
    return (double *)((char *)machine + members[i].offset);
}

struct gemmar_sim_machine gemmar_sim_machine_default(void)
{
    struct gemmar_sim_machine machine;

    for (size_t i = 0; i < MEMBERS; i++) {
        *at(&machine, i) = members[i].value;
    }
    return machine;
}

/* One "name=value" of `length` bytes. */
static int parse_one(const char *text, size_t length, struct gemmar_sim_machine *machine, char *why,
                     size_t why_bytes)
{
    for (size_t i = 0; i < MEMBERS; i++) {
        size_t name = strlen(members[i].name);
        char *end;
        double value;

        if (length <= name || strncmp(text, members[i].name, name) != 0 || text[name] != '=') {
            continue;
        }
        value = strtod(text + name + 1, &end);
        if (end == text + name + 1 || end != text + length || !isfinite(value) ||
            value < members[i].least || value > members[i].most) {
            (void)snprintf(why, why_bytes, "'%.*s' is not a number from %g to %g", (int)length,
                           text, members[i].least, members[i].most);
            return -EINVAL;
        }
        *at(machine, i) = value;
        return 0;
    }
    (void)snprintf(why, why_bytes, "'%.*s' is no name=value of the machine; list: show them",
                   (int)length, text);
    return -EINVAL;
}

int gemmar_sim_machine_parse(const char *text, struct gemmar_sim_machine *machine, char *why,
                             size_t why_bytes)
{
    struct gemmar_sim_machine changed = *machine;

    for (;;) {
        size_t length = strcspn(text, ",");

        if (parse_one(text, length, &changed, why, why_bytes) != 0) {
            return -EINVAL;
        }
        if (text[length] == '\0') {
            break;
        }
        text += length + 1;
    }
    *machine = changed;
    return 0;
}

void gemmar_sim_machine_print(FILE *out, const struct gemmar_sim_machine *machine,
                              const char *between)
{
    struct gemmar_sim_machine copy = *machine;

    for (size_t i = 0; i < MEMBERS; i++) {
        (void)fprintf(out, "%s%s=%g", i == 0 ? "" : between, members[i].name, *at(&copy, i));
    }
}

void gemmar_sim_machine_list(FILE *out)
{
    for (size_t i = 0; i < MEMBERS; i++) {
        (void)fprintf(out, "%-13s %7g  %s\n", members[i].name, members[i].value, members[i].source);
    }
}

double gemmar_sim_line_rate(const struct gemmar_sim_machine *machine)
{
    return machine->nics * machine->nic_gbits * 1e3 / 8;
}

double gemmar_sim_wire_rate(const struct gemmar_sim_machine *machine)
{
    return gemmar_sim_line_rate(machine) * machine->nic_share;
}
