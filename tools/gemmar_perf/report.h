// SPDX-License-Identifier: Apache-2.0
// What a shape's measurement says, as a line of a table and as a JSON object.
#ifndef GEMMAR_PERF_REPORT_H
#define GEMMAR_PERF_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/gemmar_perf/options.h"

struct gemmar_perf_result {
    struct gemmar_perf_shape shape;
    gemmarDataType_t dtype;
    gemmarAlgo_t algo; /* that was used */
    bool trans_b;
    uint32_t nodes, ranks_per_node;
    uint32_t iters;
    double time_us;              /* maximum over the ranks of their medians */
    uint64_t wire_bytes;         /* of one call, the rank that sent most */
    uint64_t wire_bytes_formula; /* of the same rank */
    double wire_mean;            /* over the ranks, of one call */
    uint64_t workspace_bytes;    /* that this shape asks for, per rank */
    bool checked, timed;
    uint64_t wrong;
    double max_abs_err;
};

/* Derived figures; 0 when there is no time. */
double gemmar_perf_gflops(const struct gemmar_perf_result *r); /* per rank */
double gemmar_perf_algbw(const struct gemmar_perf_result *r);  /* GB/s: bytes of C over time */
double gemmar_perf_busbw(const struct gemmar_perf_result *r);  /* algbw * 2 (R - 1) / R */
/* Mean wire bytes against (N-1) S or 2 (N-1) / N S, where S = bytes of C / G; 0: no network. */
double gemmar_perf_wire_ratio(const struct gemmar_perf_result *r);

void gemmar_perf_report_head(FILE *out);
void gemmar_perf_report_line(FILE *out, const struct gemmar_perf_result *r);

/* One object and a line feed. 0 or a negative errno. */
int gemmar_perf_report_json(FILE *out, const struct gemmar_perf_result *r, const char *machine,
                            const char *command);

/* "..." with escapes. */
void gemmar_perf_json_text(FILE *out, const char *text);
/* A number, or null when it is none. */
void gemmar_perf_json_number(FILE *out, const char *key, double value);

/* "Model of the CPU, N CPUs, Linux release". */
void gemmar_perf_machine(char *text, size_t bytes);
/* The commit that this program was built from, or "unknown". */
const char *gemmar_perf_commit(void);
/* argv with blanks between. */
void gemmar_perf_command(char **argv, char *text, size_t bytes);

#endif
