// SPDX-License-Identifier: Apache-2.0
// Settings of a communicator.
#include "kernels/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/dtype.h"

#define TILE_MAX    1024
#define CHUNK_MAX   1024
#define CTAS_MAX    1024
#define TIMEOUT_MAX 86400000u /* ms: a day, as the knob */

/* Members that the first layout does not have. */
static gemmarResult_t check_later(const gemmarConfig_t *c, struct gemmar_error *error)
{
    if ((int)c->strategy < (int)gemmarStrategyAuto ||
        (int)c->strategy > (int)gemmarStrategyExchange) {
        return gemmar_error_set(error, gemmarInvalidArgument, "config: strategy %d is not one",
                                (int)c->strategy);
    }
    if (c->maxCtas > CTAS_MAX || c->deterministic > 1 || c->reserved != 0) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "config: maxCtas %u deterministic %u reserved %u: at most %d, 1 "
                                "and 0",
                                c->maxCtas, c->deterministic, c->reserved, CTAS_MAX);
    }
    return gemmarSuccess;
}

static gemmarResult_t check_config(const gemmarConfig_t *c, struct gemmar_error *error)
{
    if (c->size < GEMMAR_CONFIG_LEAST || c->magic != GEMMAR_CONFIG_MAGIC) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "config was not begun with GEMMAR_CONFIG_INITIALIZER (size %zu)",
                                c->size);
    }
    if (c->version / 10000 != GEMMAR_MAJOR) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "config is of version %u, the library of version %d", c->version,
                                GEMMAR_VERSION);
    }
    if ((int)c->algo < (int)gemmarAlgoAuto || (int)c->algo > (int)gemmarAlgoTwoShot) {
        return gemmar_error_set(error, gemmarInvalidArgument, "config: algo %d is not one",
                                (int)c->algo);
    }
    if (c->tile_m > TILE_MAX || c->tile_n > TILE_MAX || c->chunk > CHUNK_MAX ||
        c->ctas > CTAS_MAX) {
        return gemmar_error_set(
            error, gemmarInvalidArgument,
            "config: tile_m %u tile_n %u chunk %u ctas %u: at most %d, %d, %d and %d", c->tile_m,
            c->tile_n, c->chunk, c->ctas, TILE_MAX, TILE_MAX, CHUNK_MAX, CTAS_MAX);
    }
    if (c->timeoutMs > TIMEOUT_MAX || c->check > 1) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "config: timeoutMs %u check %u: at most %u and 1", c->timeoutMs,
                                c->check, TIMEOUT_MAX);
    }
    return c->size < sizeof(*c) ? gemmarSuccess : check_later(c, error);
}

/* Host name and boot id: equal for all processes of one machine, and containers that keep their
 * host's name but not its shared memory fail later with a sentence of their own. */
static void machine_text(char *out, size_t bytes)
{
    char host[128] = "", boot[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n;

    (void)gethostname(host, sizeof(host) - 1); /* without a name the boot id has to do */
    if (fd >= 0) {
        n = read(fd, boot, sizeof(boot) - 1);
        boot[n > 0 ? (size_t)n : 0] = '\0';
        boot[strcspn(boot, "\n")] = '\0';
        (void)close(fd); /* it was only read */
    }
    (void)snprintf(out, bytes, "%s/%s", host, boot);
}

static gemmarResult_t choose_node(struct gemmar_settings *s, const char *text,
                                  struct gemmar_error *error)
{
    if (text == NULL) {
        machine_text(s->node, sizeof(s->node));
        return gemmarSuccess;
    }
    if (strlen(text) >= sizeof(s->node)) {
        return gemmar_error_set(error, gemmarInvalidArgument,
                                "the node text is longer than %zu characters", sizeof(s->node) - 1);
    }
    (void)snprintf(s->node, sizeof(s->node), "%s", text);
    return gemmarSuccess;
}

static void from_knobs(struct gemmar_settings *s, const struct gemmar_knobs *k)
{
    memset(s, 0, sizeof(*s));
    s->algo = (uint64_t)k->algo; /* auto|direct|two-shot: the order of enum gemmar_algo */
    s->tile_m = (uint64_t)k->tile_m;
    s->tile_n = (uint64_t)k->tile_n;
    s->chunk = (uint64_t)k->chunk;
    s->timeout_ns = (uint64_t)k->timeout;
    s->check = (uint64_t)k->check;
    s->epoch_start = (uint64_t)k->epoch_start;
    s->signal = (uint64_t)k->signal;     /* stamp|imm: the order of enum gemmar_signal_mode */
    s->strategy = (uint64_t)k->strategy; /* auto|...: 0, enum gemmar_strategy + 1 */
    s->deterministic = (uint64_t)k->deterministic;
    s->ctas = (uint32_t)k->ctas;
    s->max_ctas = (uint32_t)k->max_ctas;
    s->ring_entries = (uint32_t)k->ring_entries;
    (void)snprintf(s->transport, sizeof(s->transport), "%s", k->transport);
    (void)snprintf(s->tuning, sizeof(s->tuning), "%s", k->tuning);
    (void)snprintf(s->trace, sizeof(s->trace), "%s", k->trace);
}

static void from_config(struct gemmar_settings *s, const gemmarConfig_t *c)
{
    s->algo = c->algo != gemmarAlgoAuto ? (uint64_t)c->algo : s->algo;
    s->tile_m = c->tile_m != 0 ? c->tile_m : s->tile_m;
    s->tile_n = c->tile_n != 0 ? c->tile_n : s->tile_n;
    s->chunk = c->chunk != 0 ? c->chunk : s->chunk;
    s->ctas = c->ctas != 0 ? c->ctas : s->ctas;
    s->timeout_ns = c->timeoutMs != 0 ? c->timeoutMs * UINT64_C(1000000) : s->timeout_ns;
    s->check = c->check != 0 ? c->check : s->check;
    if (c->size < sizeof(*c)) {
        return;
    }
    s->strategy = c->strategy != gemmarStrategyAuto ? (uint64_t)c->strategy : s->strategy;
    s->max_ctas = c->maxCtas != 0 ? c->maxCtas : s->max_ctas;
    s->deterministic = c->deterministic != 0 ? c->deterministic : s->deterministic;
}

/* A warning is kept for the sentence, whatever becomes of the line. */
static void note_line(void *user, enum gemmar_log_level level, const char *text)
{
    const struct gemmar_logger *log = user;

    if (level == GEMMAR_LOG_WARN) {
        gemmar_error_note(text);
    }
    gemmar_log(log, level, "%s", text);
}

static int read_knobs(struct gemmar_knobs *knobs, struct gemmar_logger *log)
{
    struct gemmar_logger noting = {.sink = note_line, .user = log, .level = GEMMAR_LOG_WARN};
    int rc;

    gemmar_error_note("");
    rc = gemmar_knobs_read(knobs, &noting);
    log->level = noting.level;
    return rc;
}

gemmarResult_t gemmar_settings_make(struct gemmar_settings *out, const gemmarConfig_t *config,
                                    const char *node_text, struct gemmar_logger *log,
                                    struct gemmar_error *error)
{
    struct gemmar_knobs *knobs = malloc(sizeof(*knobs));
    gemmarResult_t result;

    if (knobs == NULL) {
        return gemmar_error_set(error, gemmarSystemError, "out of memory");
    }
    if (config != NULL) {
        result = check_config(config, error);
        if (result != gemmarSuccess) {
            goto free_knobs;
        }
    }
    if (read_knobs(knobs, log) != 0) {
        result = gemmar_error_set(error, gemmarInvalidArgument, "%s", gemmar_error_noted());
        goto free_knobs;
    }
    gemmar_knobs_report_others(knobs, log); /* one node needs no transport that would */
    from_knobs(out, knobs);
    if (config != NULL) {
        from_config(out, config);
    }
    result = choose_node(out,
                         node_text != NULL          ? node_text
                         : knobs->hostid[0] != '\0' ? knobs->hostid
                                                    : NULL,
                         error);
free_knobs:
    free(knobs);
    return result;
}

struct gemmar_plan_facts gemmar_settings_facts(const struct gemmar_settings *settings,
                                               uint32_t nodes, uint32_t locals)
{
    struct gemmar_plan_facts facts = {
        .nodes = nodes,
        .locals = locals,
        .algo = (uint32_t)settings->algo,
        .tile_m = (uint32_t)settings->tile_m,
        .tile_n = (uint32_t)settings->tile_n,
        .chunk_tiles = (uint32_t)settings->chunk,
        .sms = settings->sms,
        .strategy = (uint32_t)settings->strategy,
        .resident = settings->resident,
        .net_mbps = settings->net_mbps,
        .tuning = settings->deterministic != 0 ? NULL : settings->table,
    };

    return facts;
}

int gemmar_settings_dtype(gemmarDataType_t datatype, uint32_t *out_dtype)
{
    switch ((int)datatype) {
    case gemmarFloat16: *out_dtype = GEMMAR_DTYPE_FP16; return 0;
    case gemmarFloat32: *out_dtype = GEMMAR_DTYPE_FP32; return 0;
    case gemmarBfloat16: *out_dtype = GEMMAR_DTYPE_BF16; return 0;
    default: return -EINVAL;
    }
}
