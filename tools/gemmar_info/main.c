// SPDX-License-Identifier: Apache-2.0
// gemmar_info: the doctor. Looks at everything that RDMA and the NCCL plugin need and says what to
// do about what is missing. It changes nothing.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/gemmar_info/doctor.h"
#include "transport/build_id.h"

enum {
    USABLE = 0,
    STOPPED = 1,
    USAGE = 2,
    BROKEN = 3,
};

static const char usage[] =
    "usage: gemmar_info [OPTION]...\n"
    "Look at what RDMA and the NCCL plugin need: libibverbs, devices, GIDs, GPUDirect, limits,\n"
    "NCCL, the libraries, every knob. Each problem comes with a sentence on what to do.\n"
    "\n"
    "  --json         one JSON object\n"
    "  --env          the knobs only\n"
    "  --nccl PATH    the libnccl.so.2 to look at (what the loader finds)\n"
    "  --root DIR     read /sys, /proc and /dev below DIR, for GPUs, modules and nodes (for "
    "tests)\n"
    "  --help, --version\n"
    "\n"
    "exit status: 0 RDMA can be used, 1 a problem stops it, 2 wrong usage, 3 the program failed\n";

struct options {
    bool json;
    bool env;
    const char *nccl;
    const char *root;
};

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {
        {"json", no_argument, NULL, 'j'},
        {"env", no_argument, NULL, 'e'},
        {"nccl", required_argument, NULL, 'n'},
        {"root", required_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (c) {
        case 'j': o->json = true; break;
        case 'e': o->env = true; break;
        case 'n': o->nccl = optarg; break;
        case 'r': o->root = optarg; break;
        case 'h': return fputs(usage, stdout) < 0 ? BROKEN : USABLE;
        case 'v': return printf("gemmar_info %s\n", gemmar_build_id) < 0 ? BROKEN : USABLE;
        default: (void)fputs(usage, stderr); return USAGE;
        }
    }
    if (optind != argc) {
        (void)fprintf(stderr, "gemmar_info: no argument is taken: %s\n", argv[optind]);
        return USAGE;
    }
    return -1;
}

static void examine(struct gemmar_info *d, bool env_only)
{
    gemmar_info_knobs_read(d);
    if (!env_only) {
        gemmar_info_verbs(d);
        gemmar_info_devices(d);
        gemmar_info_setup(d);
        gemmar_info_gpus(d);
        gemmar_info_gpudirect(d);
        gemmar_info_limits(d);
        gemmar_info_libraries(d);
    }
    gemmar_info_knobs(d);
}

int main(int argc, char **argv)
{
    struct options o = {.root = ""};
    int status = parse(argc, argv, &o);
    struct gemmar_info *d;

    if (status >= 0) {
        return status;
    }
    d = calloc(1, sizeof(*d)); /* the knobs are large */
    if (d == NULL) {
        (void)fputs("gemmar_info: out of memory\n", stderr);
        return BROKEN;
    }
    d->root = o.root;
    d->nccl = o.nccl;
    examine(d, o.env);
    (o.json ? gemmar_info_print_json : gemmar_info_print_text)(&d->report, stdout);
    status = gemmar_info_report_stops(&d->report) ? STOPPED : USABLE;
    if (d->report.failed || fflush(stdout) != 0 || ferror(stdout)) {
        (void)fputs("gemmar_info: the report is not complete\n", stderr);
        status = BROKEN;
    }
    gemmar_info_report_release(&d->report);
    free(d);
    return status;
}
