// SPDX-License-Identifier: Apache-2.0
// Which rank is this process, and where is rank 0?
#include "tools/gemmar_perf/place.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_PORT 20000u /* of those made up from a job's number */
#define PORTS      20000u

static bool number(const char *name, uint32_t *out_value)
{
    const char *text = getenv(name);
    char *end;
    unsigned long value;

    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    value = strtoul(text, &end, 10);
    if (*end != '\0' || errno != 0 || value > UINT32_MAX) {
        return false;
    }
    *out_value = (uint32_t)value;
    return true;
}

/* A port that all ranks of one job make up alike. */
static uint32_t port_of_job(const char *job)
{
    uint32_t hash = 2166136261u;

    for (const char *p = job; *p != '\0'; p++) {
        hash = (hash ^ (uint8_t)*p) * 16777619u;
    }
    return FIRST_PORT + hash % PORTS;
}

int gemmar_perf_place_first_host(const char *list, char *host, size_t bytes)
{
    size_t prefix = strcspn(list, "[,");
    const char *digits = list + prefix + 1;
    size_t count = list[prefix] == '[' ? strcspn(digits, "-,]") : 0;

    if (prefix + count == 0 || prefix + count >= bytes ||
        (list[prefix] == '[' && (count == 0 || digits[count] == '\0'))) {
        return -EINVAL;
    }
    (void)snprintf(host, bytes, "%.*s%.*s", (int)prefix, list, (int)count, digits);
    return 0;
}

static void find_address(struct gemmar_perf_place *p)
{
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    const char *job = getenv("SLURM_JOB_ID"), *hosts = getenv("SLURM_JOB_NODELIST");
    char first[256];
    uint32_t local;

    if (host != NULL && port != NULL) {
        (void)snprintf(p->address, sizeof(p->address), "%s:%s", host, port);
    } else if (strcmp(p->launcher, "srun") == 0 && job != NULL && hosts != NULL &&
               gemmar_perf_place_first_host(hosts, first, sizeof(first)) == 0) {
        (void)snprintf(p->address, sizeof(p->address), "%s:%u", first, port_of_job(job));
    } else if (number("OMPI_COMM_WORLD_LOCAL_SIZE", &local) && local == p->ranks) {
        job = getenv("PMIX_NAMESPACE");
        job = job != NULL ? job : getenv("OMPI_MCA_ess_base_jobid");
        (void)snprintf(p->address, sizeof(p->address), "127.0.0.1:%u",
                       port_of_job(job != NULL ? job : "one"));
    }
}

int gemmar_perf_place_find(const char *rendezvous, struct gemmar_perf_place *out_place, char *why,
                           size_t why_bytes)
{
    static const struct {
        const char *launcher, *rank, *ranks;
    } known[] = {
        {"gemmar_perf", GEMMAR_PERF_ENV_RANK, GEMMAR_PERF_ENV_RANKS},
        {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"torchrun", "RANK", "WORLD_SIZE"},
        {"srun", "SLURM_PROCID", "SLURM_NTASKS"},
    };
    struct gemmar_perf_place p = {.ranks = 1};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && p.launcher == NULL; i++) {
        const char *rank = getenv(known[i].rank), *ranks = getenv(known[i].ranks);

        if (rank == NULL || ranks == NULL) {
            continue;
        }
        if (!number(known[i].rank, &p.rank) || !number(known[i].ranks, &p.ranks) ||
            p.rank >= p.ranks) {
            (void)snprintf(why, why_bytes, "%s is '%s' and %s '%s': no rank of so many",
                           known[i].rank, rank, known[i].ranks, ranks);
            return -EINVAL;
        }
        /* an interactive allocation of one task is no reason not to launch */
        if (i == 0 || p.ranks > 1) {
            p.launcher = known[i].launcher;
        }
    }
    if (p.launcher == NULL) {
        *out_place = (struct gemmar_perf_place){.ranks = 1};
        return 0;
    }
    if (p.launcher == known[0].launcher) {
        const char *address = getenv(GEMMAR_PERF_ENV_ADDRESS);

        (void)snprintf(p.address, sizeof(p.address), "%s", address != NULL ? address : "");
    } else if (rendezvous != NULL) {
        (void)snprintf(p.address, sizeof(p.address), "%s", rendezvous);
    } else {
        find_address(&p);
    }
    if (p.address[0] == '\0') {
        (void)snprintf(
            why, why_bytes,
            "started by %s without an address of rank 0: give --rendezvous HOST:PORT, or "
            "set MASTER_ADDR and MASTER_PORT",
            p.launcher);
        return -EINVAL;
    }
    *out_place = p;
    return 0;
}
