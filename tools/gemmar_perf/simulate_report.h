// SPDX-License-Identifier: Apache-2.0
// A forecast as a line of a table and as a JSON object.
#ifndef GEMMAR_PERF_SIMULATE_REPORT_H
#define GEMMAR_PERF_SIMULATE_REPORT_H

#include <stdbool.h>

#include "tools/gemmar_perf/simulate_bounds.h"

struct gemmar_sim_forecast {
    struct gemmar_sim_call call;
    struct gemmar_sim_result result;
    struct gemmar_sim_bounds bounds;
    struct gemmar_sim_unfused unfused;
    bool chosen; /* the plan would choose this algorithm */
};

/* Simulate a call: gemmar_sim_run(), and what it is compared with. */
int gemmar_sim_forecast(const struct gemmar_sim_machine *machine,
                        const struct gemmar_sim_call *call, struct gemmar_sim_forecast *out,
                        char *why, size_t why_bytes);

const char *gemmar_sim_algo_name(uint32_t algo);

void gemmar_sim_report_head(FILE *out, const struct gemmar_sim_forecast *f);
/* Direct and two-shot of one number of nodes; on one node both are the same. */
void gemmar_sim_report_line(FILE *out, const struct gemmar_sim_forecast *direct,
                            const struct gemmar_sim_forecast *two_shot);

/* One object and a line feed. 0 or a negative errno. */
int gemmar_sim_report_json(FILE *out, const struct gemmar_sim_machine *machine,
                           const struct gemmar_sim_forecast *f, const char *command);

#endif
