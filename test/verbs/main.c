// SPDX-License-Identifier: Apache-2.0
// verbs_conformance: run every check in a process of its own and print one TAP line for each.
#include "test/verbs/conformance.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATUS_FAILED = 1, STATUS_USAGE = 2, STATUS_SKIPPED = 77 };

struct options options = {.port = 1, .gid_index = -1};

static const struct check *const families[] = {
    query_checks,  object_checks, state_checks,  data_checks,  order_checks,
    local_checks,  remote_checks, retry_checks,  queue_checks, event_checks,
    atomic_checks, peer_checks,   wr_api_checks, cq_ex_checks, memory_checks,
};

#define NAME(id, kind) #id,
static const char *const difference_name[] = {GEMMAR_DIFFERENCES(NAME)};
#undef NAME
#define KIND(id, kind) kind,
static const enum device_kind difference_kind[] = {GEMMAR_DIFFERENCES(KIND)};
#undef KIND

static enum device_kind device_kind;
static bool device_kind_known;

// Writer: the process of one check and its children. Reader: the parent, after waitpid.
static struct {
    bool used[DIFFERENCES];
    char reason[400];
} * result;

static void detect_device(void)
{
    struct ibv_context *ctx = device_open(0);
    struct ibv_device_attr attr;
    MUST(ibv_query_device(ctx, &attr) == 0, "ibv_query_device");
    // rxe and softhca have numbers that no hardware has
    device_kind = attr.vendor_id == 0xffffff                                 ? KIND_RXE
                  : attr.vendor_id == 0x2c9 && attr.vendor_part_id == 0x5f5f ? KIND_SOFTHCA
                                                                             : KIND_HARDWARE;
    device_kind_known = true;
    MUST(ibv_close_device(ctx) == 0, "ibv_close_device");
}

bool allowed(enum difference id)
{
    if (!device_kind_known) {
        detect_device();
    }
    if (difference_kind[id] != device_kind) {
        return false;
    }
    result->used[id] = true;
    return true;
}

void check_failed(const char *file, int line, const char *condition, const char *format, ...)
{
    char text[200];
    va_list args;
    int error = errno;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args); // a cut text is still a text
    va_end(args);
    snprintf(result->reason, sizeof(result->reason), "%s:%d: %s: %s (errno %d)", file, line, text,
             condition, error);
    exit(STATUS_FAILED);
}

void check_skipped(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(result->reason, sizeof(result->reason), format, args);
    va_end(args);
    exit(STATUS_SKIPPED);
}

// Starts the check as the leader of a process group, so that a deadline ends its peers as well.
static int run_child(const struct check *c)
{
    pid_t pid = fork();
    if (pid < 0) {
        return -1;
    }
    if (pid == 0) {
        (void)setpgid(0, 0);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        c->run();
        exit(0);
    }
    (void)setpgid(pid, pid); // whichever of the two is first
    double end = now() + (c->seconds ? c->seconds : DEFAULT_SECONDS);
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now() > end) {
            snprintf(result->reason, sizeof(result->reason), "no end within the deadline");
            (void)kill(-pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
            return -1;
        }
        nap(0.001);
    }
    (void)kill(-pid, SIGKILL); // peers that it left behind
    if (WIFSIGNALED(status)) {
        snprintf(result->reason, sizeof(result->reason), "signal %d", WTERMSIG(status));
        return -1;
    }
    return WEXITSTATUS(status);
}

static bool run_check(const struct check *c, unsigned number)
{
    memset(result, 0, sizeof(*result));
    int status = run_child(c);
    if (status == STATUS_SKIPPED) {
        printf("ok %u - %s # SKIP %s\n", number, c->name, result->reason);
    } else {
        printf("%s %u - %s", status == 0 ? "ok" : "not ok", number, c->name);
        const char *lead = " # allowed difference:";
        for (int i = 0; i < DIFFERENCES; i++) {
            if (result->used[i]) {
                printf("%s %s", lead, difference_name[i]);
                lead = "";
            }
        }
        printf("\n");
        if (status != 0) {
            printf("# %s\n", result->reason[0] ? result->reason : "ended without a reason");
        }
    }
    fflush(stdout);
    return status == 0 || status == STATUS_SKIPPED;
}

// `only` is a comma-separated list of names or beginnings of names, or NULL.
static bool wanted(const char *name, const char *only)
{
    for (const char *p = only; p; p = strchr(p, ',')) {
        p += *p == ',';
        size_t n = strcspn(p, ",");
        if (n && strncmp(name, p, n) == 0) {
            return true;
        }
    }
    return only == NULL;
}

static void usage(void)
{
    puts("usage: verbs_conformance [OPTION...]\n"
         "  --device A[,B]    the devices (default: the first two, or the first one twice)\n"
         "  --port N          (default 1)\n"
         "  --gid-index N     (default: the first IPv4 GID, else 0)\n"
         "  --port-down CMD   take the first device's port down, for the port events\n"
         "  --port-up CMD     and up again\n"
         "  --only NAME,...   checks with these names, or whose names begin so\n"
         "  --list            print the names\n"
         "  --differences     print the allowed differences; differences.md explains them\n"
         "Prints TAP. Status 0: all passed; 1: a check failed; 2: wrong usage.");
}

// Asked in a process of its own: a library may start threads, and the checks are forked.
static bool no_device(void)
{
    int count = 0, status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        struct ibv_device **list = ibv_get_device_list(&count);
        if (list) {
            ibv_free_device_list(list);
        }
        exit(count > 0 ? 0 : 1);
    }
    return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

static int run_all(const char *only)
{
    unsigned count = 0, number = 0;
    bool good = true;

    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        for (const struct check *c = families[f]; c->name; c++) {
            count += wanted(c->name, only);
        }
    }
    if (count == 0) {
        fprintf(stderr, "verbs_conformance: no check is named %s\n", only);
        return STATUS_USAGE;
    }
    result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (result == MAP_FAILED) {
        fprintf(stderr, "verbs_conformance: mmap: %s\n", strerror(errno));
        return STATUS_FAILED;
    }
    printf("1..%u\n", count);
    fflush(stdout);
    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        for (const struct check *c = families[f]; c->name; c++) {
            if (wanted(c->name, only)) {
                good &= run_check(c, ++number);
            }
        }
    }
    return good ? 0 : STATUS_FAILED;
}

static void list_checks(void)
{
    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        for (const struct check *c = families[f]; c->name; c++) {
            puts(c->name);
        }
    }
}

static void set_devices(char *names)
{
    options.device[0] = names;
    options.device[1] = names;
    char *comma = strchr(names, ',');
    if (comma) {
        *comma = '\0';
        options.device[1] = comma + 1;
    }
}

// False unless the whole text is a number in [low, 255].
static bool number(const char *text, int low, int *out)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < low || value > 255) {
        return false;
    }
    *out = (int)value;
    return true;
}

int main(int argc, char **argv)
{
    static const struct option table[] = {
        {"device", required_argument, NULL, 'd'},
        {"port", required_argument, NULL, 'p'},
        {"gid-index", required_argument, NULL, 'g'},
        {"port-down", required_argument, NULL, 'D'},
        {"port-up", required_argument, NULL, 'U'},
        {"only", required_argument, NULL, 'o'},
        {"list", no_argument, NULL, 'l'},
        {"differences", no_argument, NULL, 'f'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *only = NULL;
    bool good = true;

    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        switch (c) {
        case 'd': set_devices(optarg); break;
        case 'p': good &= number(optarg, 1, &options.port); break;
        case 'g': good &= number(optarg, 0, &options.gid_index); break;
        case 'D': options.port_down = optarg; break;
        case 'U': options.port_up = optarg; break;
        case 'o': only = optarg; break;
        case 'l': list_checks(); return 0;
        case 'f':
            for (int i = 0; i < DIFFERENCES; i++) {
                puts(difference_name[i]);
            }
            return 0;
        case 'h': usage(); return 0;
        default: good = false;
        }
    }
    if (!good || optind != argc) {
        fprintf(stderr, "verbs_conformance: wrong usage, see --help\n");
        return STATUS_USAGE;
    }
    if (no_device()) {
        puts("1..0 # SKIP no verbs device");
        return 0;
    }
    return run_all(only);
}
