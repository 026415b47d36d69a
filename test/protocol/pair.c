// SPDX-License-Identifier: Apache-2.0
// Two ranks as two processes, joined by one channel each.
#include "test/protocol/pair.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "transport/fifo.h"
#include "transport/order.h"
#include "transport/table.h"
#include "transport/wait.h"
#include "transport/wire.h"

#define GUARD_BYTES  4096u
#define GUARD_VALUE  0xa5
#define CASE_SECONDS 200 /* one takes 20 in an emulated machine, and others may keep it waiting */
#define WAIT_NS      UINT64_C(30000000000) /* for anything that should happen at once */

/* Written by a rank's process, or the parent that kills it; read by the parent after it ended. */
struct verdict {
    char text[1024];
    int warnings; /* that were not expected */
};

static struct verdict *verdicts; /* [2], shared with the ranks */
static struct verdict *mine;
static int cases, failures;

void pair_sleep_ms(uint64_t ms)
{
    struct timespec nap = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

    while (nanosleep(&nap, &nap) != 0 && errno == EINTR) {
    }
}

void pair_fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(mine->text, sizeof(mine->text), format, args);
    va_end(args);
    _exit(1);
}

static void on_log(void *user, enum gemmar_log_level level, const char *text)
{
    struct pair_end *end = user;

    (void)fprintf(stderr, "# rank %u: %s\n", end->rank, text);
    if (level == GEMMAR_LOG_WARN &&
        (end->options.log == NULL || strstr(text, end->options.log) == NULL)) {
        mine->warnings++;
    }
}

static void *map(uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        pair_fail("mmap of %llu bytes: %s", (unsigned long long)bytes, strerror(errno));
    }
    return at;
}

/* data: guard, then of each route source[2] and sink[2], then guard. */
static uint64_t source_at(const struct pair_end *e, uint32_t route, uint64_t parity)
{
    return GUARD_BYTES + (route * 4 + parity) * (e->window_bytes + GUARD_BYTES);
}

static uint64_t sink_at(const struct pair_end *e, uint32_t route, uint64_t parity)
{
    return source_at(e, route, parity + 2);
}

static uint64_t stamp_at(const struct pair_end *e, uint32_t route, uint64_t parity)
{
    return (route * 2 + parity) * 8 * (uint64_t)e->options.slots;
}

static void describe_routes(const struct pair_end *e, struct gemmar_route_settings *routes)
{
    for (uint32_t r = 0; r < e->options.routes; r++) {
        routes[r] = (struct gemmar_route_settings){
            .peer = 0, .peer_route = r, .window_bytes = e->window_bytes, .slots = e->options.slots};
        for (uint64_t p = 0; p < 2; p++) {
            routes[r].source_offset[p] = source_at(e, r, p);
            routes[r].sink_offset[p] = sink_at(e, r, p);
            routes[r].stamp_offset[p] = stamp_at(e, r, p);
        }
    }
}

void pair_open(struct pair_end *e)
{
    struct gemmar_transport_settings t = {.size = sizeof(t), .log = on_log, .log_user = e};
    uint32_t peers[1] = {1 - e->rank}, devices[1] = {0};
    struct gemmar_route_settings routes[PAIR_MAX_ROUTES];
    struct gemmar_channel_settings c = {.size = sizeof(c),
                                        .rank = e->rank,
                                        .peer_count = 1,
                                        .peer_ranks = peers,
                                        .route_count = e->options.routes,
                                        .device_count = 1,
                                        .routes = routes,
                                        .devices = devices,
                                        .queue_pairs_per_peer = e->options.queue_pairs,
                                        .ring_entries = e->options.ring_entries,
                                        .signal = e->options.signal,
                                        .numa_node = -1,
                                        .first_epoch = e->options.first_epoch,
                                        .timeout_ns = e->options.timeout_ms * 1000000,
                                        .abort_word = &e->abort_word};
    int rc;

    e->window_bytes = (uint64_t)e->options.slots * e->options.slot_bytes;
    e->data_bytes = GUARD_BYTES + e->options.routes * 4 * (e->window_bytes + (uint64_t)GUARD_BYTES);
    e->stamp_bytes = e->options.routes * 2 * 8 * (uint64_t)e->options.slots;
    if (e->data == NULL) {
        e->data = map(e->data_bytes);
        e->stamps = map(e->stamp_bytes);
        memset(e->data, GUARD_VALUE, e->data_bytes);
    }
    describe_routes(e, routes);
    c.data = (struct gemmar_memory){
        .address = e->data, .length = e->data_bytes, .dmabuf_fd = -1, .is_gpu = e->options.gpu};
    c.stamps =
        (struct gemmar_memory){.address = e->stamps, .length = e->stamp_bytes, .dmabuf_fd = -1};
    rc = e->table->acquire(&t, &e->transport);
    if (rc != 0) {
        pair_fail("acquire: %s", strerror(-rc));
    }
    rc = e->table->channel_open(e->transport, &c, &e->channel);
    if (rc != 0) {
        pair_fail("channel_open: %s", strerror(-rc));
    }
    rc = e->table->channel_ring(e->channel, &e->ring);
    if (rc != 0) {
        pair_fail("channel_ring: %s", strerror(-rc));
    }
}

void pair_close(struct pair_end *e)
{
    e->table->channel_close(e->channel);
    e->table->release(e->transport);
    e->channel = NULL;
    e->transport = NULL;
}

/* False when the other rank is gone. */
static bool swap(int sock, const void *out, void *in, size_t bytes)
{
    size_t done = 0;

    if (send(sock, out, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) {
        return false;
    }
    while (done < bytes) {
        ssize_t n = recv(sock, (char *)in + done, bytes - done, 0);

        if (n <= 0) {
            return false;
        }
        done += (size_t)n;
    }
    return true;
}

void pair_meet(struct pair_end *e)
{
    char out = 'm', in;

    if (!swap(e->sock, &out, &in, 1)) {
        pair_fail("the other rank left early");
    }
}

void pair_wait_gone(struct pair_end *e)
{
    char in;

    if (recv(e->sock, &in, 1, 0) > 0) {
        pair_fail("the other rank is still there");
    }
}

void pair_join(struct pair_end *e)
{
    char own[GEMMAR_CONNECT_BLOB_BYTES], theirs[GEMMAR_CONNECT_BLOB_BYTES];
    int rc = e->table->channel_blob(e->channel, 0, own);

    if (rc != 0) {
        pair_fail("channel_blob: %s", strerror(-rc));
    }
    if (!swap(e->sock, own, theirs, sizeof(own))) {
        pair_fail("the other rank left early");
    }
    if (e->options.wrong_key && e->rank == 0) {
        struct gemmar_wire_blob blob;

        memcpy(&blob, theirs, sizeof(blob));
        blob.data_rkey[0] ^= 0x5a5a00;
        memcpy(theirs, &blob, sizeof(blob));
    }
    rc = e->table->channel_connect(e->channel, 0, theirs);
    if (rc != 0) {
        pair_fail("channel_connect: %s", strerror(-rc));
    }
    rc = e->table->channel_start(e->channel);
    if (rc != 0) {
        pair_fail("channel_start: %s", strerror(-rc));
    }
    pair_meet(e);
}

uint32_t pair_length(const struct pair_end *e, uint64_t epoch, uint32_t slot)
{
    uint32_t all = e->options.slot_bytes;

    switch ((epoch + slot) % 5) {
    case 0: return all;
    case 1: return 0;
    case 2: return 1;
    case 3: return all - 3;
    default: return all / 2;
    }
}

#define MOST_BYTES (1 << 20)

/* What `rank` sends in a slot, in memory that nothing else looks at: ThreadSanitizer need not look
 * at each word of it, and sees the copies of it. */
static __attribute__((no_sanitize("thread"))) const char *
pattern(uint32_t rank, uint32_t route, uint64_t epoch, uint32_t slot, uint32_t length)
{
    static uint64_t words[MOST_BYTES / sizeof(uint64_t)];
    uint64_t count = ((uint64_t)length + sizeof(words[0]) - 1) / sizeof(words[0]);
    uint64_t x = epoch * 0x9e3779b97f4a7c15u + slot * 0xd1342543de82ef95u + rank * 77 + route * 131;

    for (uint64_t i = 0; i < count; i++) {
        x += 0xbf58476d1ce4e5b9u;
        words[i] = x ^ x >> 29;
    }
    return (const char *)words;
}

static bool broken(const struct pair_end *e)
{
    return gemmar_load_acquire(&e->abort_word) != 0;
}

/* False: the channel broke. */
static bool wait_word(const struct pair_end *e, const uint64_t *word, uint64_t value,
                      const char *what)
{
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, WAIT_NS);
    while (gemmar_load_acquire(word) < value) {
        if (broken(e)) {
            return false;
        }
        if (!gemmar_wait_step(&wait)) {
            pair_fail("%s: waited for %llu, seen %llu", what, (unsigned long long)value,
                      (unsigned long long)gemmar_load_acquire(word));
        }
    }
    return true;
}

bool pair_push(struct pair_end *e, uint64_t epoch)
{
    uint64_t parity = epoch & 1;

    if (!wait_word(e, e->ring.retired, e->heads[parity], "retired")) {
        return false;
    }
    for (uint32_t route = 0; route < e->options.routes; route++) {
        for (uint32_t slot = 0; slot < e->options.slots; slot++) {
            uint64_t offset = (uint64_t)slot * e->options.slot_bytes;
            struct gemmar_fifo_request r = {.offset = offset,
                                            .length = pair_length(e, epoch, slot),
                                            .slot = slot,
                                            .route = route,
                                            .epoch = (uint32_t)epoch};
            char *at = e->data + source_at(e, route, parity) + offset;

            memcpy(at, pattern(e->rank, route, epoch, slot, r.length), r.length);
            if (!gemmar_fifo_produce(&e->ring, &e->ticket, &e->known_tail, &r, &e->abort_word)) {
                return false;
            }
        }
    }
    e->heads[parity] = e->ticket;
    return true;
}

static void expect_bytes(const struct pair_end *e, uint32_t route, uint64_t epoch, uint32_t slot,
                         const char *at)
{
    uint32_t length = pair_length(e, epoch, slot);
    const char *want = pattern(1 - e->rank, route, epoch, slot, length);

    if (memcmp(at, want, length) == 0) {
        return;
    }
    for (uint32_t i = 0; i < length; i++) {
        if (at[i] != want[i]) {
            pair_fail("epoch %llu route %u slot %u byte %u: 0x%x, expected 0x%x",
                      (unsigned long long)epoch, route, slot, i, (uint8_t)at[i], (uint8_t)want[i]);
        }
    }
}

bool pair_take(struct pair_end *e, uint64_t epoch)
{
    uint64_t parity = epoch & 1;

    for (uint32_t route = 0; route < e->options.routes; route++) {
        const uint64_t *stamps = (const void *)(e->stamps + stamp_at(e, route, parity));

        for (uint32_t slot = 0; slot < e->options.slots; slot++) {
            const char *at =
                e->data + sink_at(e, route, parity) + (uint64_t)slot * e->options.slot_bytes;

            if (!wait_word(e, &stamps[slot], epoch, "stamp")) {
                return false;
            }
            if (gemmar_load_acquire(&stamps[slot]) != epoch) {
                pair_fail("route %u slot %u: stamp %llu in epoch %llu", route, slot,
                          (unsigned long long)stamps[slot], (unsigned long long)epoch);
            }
            expect_bytes(e, route, epoch, slot, at);
        }
    }
    return true;
}

bool pair_epochs(struct pair_end *e, uint64_t first, uint64_t count)
{
    for (uint64_t epoch = first; epoch < first + count; epoch++) {
        if (!pair_push(e, epoch) || !pair_take(e, epoch)) {
            return false;
        }
    }
    return true;
}

void pair_expect_epochs(struct pair_end *e, uint64_t first, uint64_t count)
{
    if (!pair_epochs(e, first, count)) {
        pair_fail_broken(e);
    }
}

void pair_expect_counters(struct pair_end *e, uint64_t epochs)
{
    struct gemmar_channel_counters c = {.size = sizeof(c)};
    uint64_t commands = epochs * e->options.routes * e->options.slots, bytes = 0;
    int rc = e->table->channel_drain(e->channel, e->ticket, 0);

    if (rc != 0) {
        pair_fail("drain: %s", strerror(-rc));
    }
    for (uint64_t i = 0; i < epochs; i++) {
        for (uint32_t slot = 0; slot < e->options.slots; slot++) {
            bytes += (uint64_t)e->options.routes * pair_length(e, e->options.first_epoch + i, slot);
        }
    }
    if (gemmar_load_acquire(e->ring.retired) != commands) {
        pair_fail("retired %llu of %llu after the drain",
                  (unsigned long long)gemmar_load_acquire(e->ring.retired),
                  (unsigned long long)commands);
    }
    e->table->channel_counters(e->channel, &c);
    if (c.commands != commands || c.data_bytes != bytes || c.errors != 0 ||
        c.stamp_bytes != (e->options.signal == GEMMAR_SIGNAL_STAMP ? 8 * commands : 0)) {
        pair_fail("counters: commands %llu of %llu, data bytes %llu of %llu, stamp bytes %llu, "
                  "errors %llu",
                  (unsigned long long)c.commands, (unsigned long long)commands,
                  (unsigned long long)c.data_bytes, (unsigned long long)bytes,
                  (unsigned long long)c.stamp_bytes, (unsigned long long)c.errors);
    }
}

void pair_fail_broken(const struct pair_end *e)
{
    struct gemmar_transport_error error = {.size = sizeof(error)};

    e->table->channel_error(e->channel, &error);
    pair_fail("the channel broke: %s", error.text);
}

const struct gemmar_transport_error *pair_expect_error(struct pair_end *e, uint64_t ms)
{
    static struct gemmar_transport_error error;
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, ms * 1000000);
    while (!broken(e)) {
        if (!gemmar_wait_step(&wait)) {
            pair_fail("no error within %llu ms, %llu of %llu commands retired",
                      (unsigned long long)ms,
                      (unsigned long long)gemmar_load_acquire(e->ring.retired),
                      (unsigned long long)e->ticket);
        }
    }
    error = (struct gemmar_transport_error){.size = sizeof(error)};
    e->table->channel_error(e->channel, &error);
    if (error.code >= 0) {
        pair_fail("the abort word is set, but the error code is %d", error.code);
    }
    if (error.rank != e->rank) {
        pair_fail("the error names rank %u", error.rank);
    }
    if (e->table->channel_drain(e->channel, e->ticket, 0) != error.code) {
        pair_fail("a drain of a broken channel does not return its error");
    }
    return &error;
}

void pair_expect_text(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        pair_fail("'%s' is not in '%s'", part, text);
    }
}

void pair_expect_guards(const struct pair_end *e)
{
    for (uint64_t w = 0; w <= e->options.routes * 4u; w++) {
        const char *at = e->data + w * (e->window_bytes + GUARD_BYTES);

        for (uint32_t i = 0; i < GUARD_BYTES; i++) {
            if ((uint8_t)at[i] != GUARD_VALUE) {
                pair_fail("byte %u of guard %llu was written", i, (unsigned long long)w);
            }
        }
    }
}

static void defaults(struct pair_options *o)
{
    o->queue_pairs = o->queue_pairs != 0 ? o->queue_pairs : 1;
    o->ring_entries = o->ring_entries != 0 ? o->ring_entries : 64;
    o->routes = o->routes != 0 ? o->routes : 1;
    o->slots = o->slots != 0 ? o->slots : 8;
    o->slot_bytes = o->slot_bytes != 0 ? o->slot_bytes : 4096;
    o->first_epoch = o->first_epoch != 0 ? o->first_epoch : 1;
    o->timeout_ms = o->timeout_ms != 0 ? o->timeout_ms : 20000;
    o->ib_timeout = o->ib_timeout != 0 ? o->ib_timeout : 18;
}

static void set(const char *name, const char *value)
{
    if (value != NULL) {
        (void)setenv(name, value, 1); /* the name is well formed */
    }
}

/* The process of one rank; never returns. */
static void run_rank(const struct pair_program *program, const struct pair_options *options,
                     pair_body body, uint32_t rank, int sock, pid_t other)
{
    struct pair_end *e = aligned_alloc(64, (sizeof(*e) + 63) / 64 * 64);
    char ib_timeout[16];

    mine = &verdicts[rank];
    if (e == NULL) {
        pair_fail("no memory");
    }
    memset(e, 0, sizeof(*e));
    e->table = &gemmarTransport_v1;
    e->options = *options;
    defaults(&e->options);
    e->program = program;
    e->rank = rank;
    e->sock = sock;
    e->other = other;
    set("NCCL_IB_HCA", program->device[rank]);
    set("SOFTHCA_NODE", rank == 0 ? "a" : "b");
    set("SOFTHCA_FAULTS", rank == 0 ? options->faults : NULL);
    (void)snprintf(ib_timeout, sizeof(ib_timeout), "%u", e->options.ib_timeout);
    set("NCCL_IB_TIMEOUT", ib_timeout);
    body(e);
    if (e->data != NULL) {
        (void)munmap(e->data, e->data_bytes);
        (void)munmap(e->stamps, e->stamp_bytes);
    }
    if (mine->warnings != 0) {
        pair_fail("%d unexpected warnings", mine->warnings);
    }
    free(e);
    exit(0); /* not _exit: LeakSanitizer reports here */
}

/* Exit status of a rank in words; NULL when it is as it should be. */
static const char *judge(uint32_t rank, int status, int signal_expected, char *text, size_t bytes)
{
    if (signal_expected != 0 && WIFSIGNALED(status) && WTERMSIG(status) == signal_expected) {
        return NULL;
    }
    if (signal_expected == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return NULL;
    }
    (void)snprintf(text, bytes, "rank %u: %s (%s %d)", rank,
                   verdicts[rank].text[0] != '\0' ? verdicts[rank].text : "no message",
                   WIFSIGNALED(status) ? "signal" : "status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return text;
}

/* Both ranks' ends, or SIGKILL for who is late. */
static void wait_ranks(const pid_t *pids, int *status)
{
    uint64_t deadline = gemmar_now_ns() + CASE_SECONDS * UINT64_C(1000000000);
    bool ended[2] = {false, false};

    while (!ended[0] || !ended[1]) {
        for (int i = 0; i < 2; i++) {
            ended[i] = ended[i] || waitpid(pids[i], &status[i], WNOHANG) == pids[i];
            if (!ended[i] && gemmar_now_ns() > deadline) {
                (void)snprintf(verdicts[i].text, sizeof(verdicts[i].text), "killed after %d s",
                               CASE_SECONDS);
                (void)kill(pids[i], SIGKILL);
            }
        }
        pair_sleep_ms(2);
    }
}

void pair_case(const struct pair_program *program, const char *name,
               const struct pair_options *options, pair_body body, int ends_with_1)
{
    int socks[2], status[2];
    pid_t pids[2];
    char text[2][1200];
    const char *wrong[2];

    if (verdicts == NULL) {
        verdicts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    }
    if (verdicts == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) != 0) {
        (void)printf("Bail out! %s\n", strerror(errno));
        exit(1);
    }
    memset(verdicts, 0, 2 * sizeof(*verdicts));
    (void)fflush(NULL);
    pids[0] = 0;
    for (uint32_t rank = 0; rank < 2; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            (void)close(socks[1 - rank]);
            run_rank(program, options, body, rank, socks[rank], pids[0]);
        }
    }
    (void)close(socks[0]);
    (void)close(socks[1]);
    wait_ranks(pids, status);
    wrong[0] = judge(0, status[0], 0, text[0], sizeof(text[0]));
    wrong[1] = judge(1, status[1], ends_with_1, text[1], sizeof(text[1]));
    cases++;
    failures += wrong[0] != NULL || wrong[1] != NULL;
    (void)printf("%s %d - %s\n", wrong[0] == NULL && wrong[1] == NULL ? "ok" : "not ok", cases,
                 name);
    for (int i = 0; i < 2; i++) {
        if (wrong[i] != NULL) {
            (void)printf("# %s\n", wrong[i]);
        }
    }
}

void pair_skip(const char *name, const char *why)
{
    (void)printf("ok %d - %s # SKIP %s\n", ++cases, name, why);
}

int pair_finish(void)
{
    (void)printf("1..%d\n", cases);
    return failures != 0;
}
