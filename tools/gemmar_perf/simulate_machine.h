// SPDX-License-Identifier: Apache-2.0
// The machine that --simulate models: rates, latencies, and where each default comes from.
#ifndef GEMMAR_PERF_SIMULATE_MACHINE_H
#define GEMMAR_PERF_SIMULATE_MACHINE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Rates in 1e9 bytes a second, times in microseconds. All ranks and nodes are alike. */
struct gemmar_sim_machine {
    double sms;          /* multiprocessors of a GPU */
    double product;      /* factor on the rates of plan.c's table */
    double tile_us;      /* of a tile between two products: conversion, staging */
    double start_us;     /* from the gate to the first product */
    double end_us;       /* from the last stamp to the end of the kernel */
    double source_us;    /* to bring one part into staging and add it */
    double store_us;     /* a tile from staging to own memory */
    double nvlink_gbs;   /* a direction of a GPU */
    double nvlink_us;    /* until a store is complete and its stamp is seen */
    double sm_store_gbs; /* what one multiprocessor stores to a peer */
    double nics;         /* of a rank */
    double nic_gbits;    /* 1e9 bits a second, a NIC and direction */
    double nic_share;    /* of the line rate that data reaches */
    double nic_us;       /* wire and both NICs, until the stamp is seen */
    double message_us;   /* a work request: the least time between two of a rank */
    double handover_us;  /* push into the ring until the work request is posted */
    double gemm_tflops;  /* cuBLASLt, large shapes */
    double gemm_us;      /* cuBLASLt, what a call takes beside that */
    double hbm_gbs;      /* copy rate of a GPU's memory, read and written bytes together */
    double nccl_gbs;     /* ncclAllReduce, busbw within a node */
    double nccl_us;      /* ncclAllReduce, what a call takes beside its steps */
    double nccl_hop_us;  /* a step over NVLink */
    double nccl_net_us;  /* a step over the NIC, above nic_us */
};

/* 8 x H200 a node with one NIC of 400 Gb/s for each. */
struct gemmar_sim_machine gemmar_sim_machine_default(void);

/* Change members: "nic_gbits=200,nic_us=5". 0, or -EINVAL with a sentence; `machine` is then
 * untouched. */
int gemmar_sim_machine_parse(const char *text, struct gemmar_sim_machine *machine, char *why,
                             size_t why_bytes);

/* "name=value" of all members, `between` between them. */
void gemmar_sim_machine_print(FILE *out, const struct gemmar_sim_machine *machine,
                              const char *between);
/* Names, defaults and where these come from, a line each. */
void gemmar_sim_machine_list(FILE *out);

/* Bytes a microsecond of all NICs of a rank, one direction: on the line, and of data. */
double gemmar_sim_line_rate(const struct gemmar_sim_machine *machine);
double gemmar_sim_wire_rate(const struct gemmar_sim_machine *machine);

#endif
