// SPDX-License-Identifier: Apache-2.0
// The channel between two processes, on any verbs device: data, order, faults and ends. TAP.
//
// usage: transport_pair [--device A,B] [--softhca] [--only TEXT] [--port-down CMD --port-up CMD]
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/protocol/pair.h"
#include "transport/fifo.h"
#include "transport/order.h"

#define EPOCHS 60

static void traffic(struct pair_end *e)
{
    uint64_t first = e->options.first_epoch;

    pair_open(e);
    pair_join(e);
    pair_expect_epochs(e, first, EPOCHS);
    pair_expect_counters(e, EPOCHS);
    pair_expect_guards(e);
    pair_meet(e);
    pair_close(e);
}

/* Somewhere in the middle the other side is not there for a while. */
static void traffic_with_a_stop(struct pair_end *e)
{
    pair_open(e);
    pair_join(e);
    pair_expect_epochs(e, 1, 5);
    if (e->rank == 1) {
        (void)kill(e->other, SIGSTOP); /* it is our sibling and alive */
        pair_sleep_ms(100);
        (void)kill(e->other, SIGCONT);
    }
    pair_expect_epochs(e, 6, 5);
    pair_meet(e);
    pair_close(e);
}

static uint32_t count_entries(const char *path)
{
    DIR *dir = opendir(path);
    uint32_t count = 0;

    while (dir != NULL && readdir(dir) != NULL) {
        count++;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return count;
}

/* A joined thread stays in /proc for a moment: wait for `most` or less, at most two seconds. */
static uint32_t count_threads(uint32_t most)
{
    uint32_t count = count_entries("/proc/self/task");

    for (int i = 0; i < 200 && count > most; i++) {
        pair_sleep_ms(10);
        count = count_entries("/proc/self/task");
    }
    return count;
}

/* Channels come and go; nothing stays, and a channel that was never connected closes too. */
static void open_and_close(struct pair_end *e)
{
    uint32_t files = 0, threads = 0;

    for (int turn = 0; turn < 8; turn++) {
        e->ticket = e->known_tail = 0;
        e->heads[0] = e->heads[1] = 0;
        pair_open(e);
        memset(e->stamps, 0, e->stamp_bytes);
        if (turn % 2 == 0) {
            pair_join(e);
            pair_expect_epochs(e, 1, 3);
            pair_meet(e);
        }
        pair_close(e);
        if (turn == 1) {
            pair_sleep_ms(100);
            files = count_entries("/proc/self/fd");
            threads = count_entries("/proc/self/task");
        }
    }
    if (count_entries("/proc/self/fd") > files || count_threads(threads) > threads) {
        pair_fail("%u descriptors and %u threads, %u and %u after the second turn",
                  count_entries("/proc/self/fd"), count_entries("/proc/self/task"), files, threads);
    }
}

/* Rank 1 dies; rank 0 must be told who. The sockets of a process are closed before its queue pairs
 * are destroyed, and these answer until then: what they take is no error, so rank 0 goes on. */
static void killed_peer(struct pair_end *e)
{
    const struct gemmar_transport_error *error;
    uint64_t epoch = 4;

    pair_open(e);
    pair_join(e);
    pair_expect_epochs(e, 1, 3);
    pair_expect_counters(e, 3); /* everything has arrived before it dies */
    pair_meet(e);
    if (e->rank == 1) {
        (void)raise(SIGKILL);
    }
    pair_wait_gone(e);
    while (pair_push(e, epoch)) { /* the case has a deadline */
        epoch++;
        pair_sleep_ms(1);
    }
    error = pair_expect_error(e, 0);
    if (error->peer_rank != 1 || error->qp_number == 0) {
        pair_fail("the error names peer %u qp 0x%x", error->peer_rank, error->qp_number);
    }
    pair_close(e);
}

/* A process that is stopped for good is found by its peer's deadline at the latest. */
static void stopped_peer(struct pair_end *e)
{
    const struct gemmar_transport_error *error;

    pair_open(e);
    pair_join(e);
    pair_expect_epochs(e, 1, 3);
    pair_expect_counters(e, 3);
    pair_meet(e);
    if (e->rank == 1) {
        (void)kill(e->other, SIGSTOP);
        pair_sleep_ms(200); /* all of its threads have stopped */
        (void)pair_push(e, 4);
        error = pair_expect_error(e, e->options.timeout_ms + 10000);
        if (error->peer_rank != 0) {
            pair_fail("the error names peer %u", error->peer_rank);
        }
        (void)kill(e->other, SIGCONT);
        pair_meet(e);
    } else {
        pair_meet(e);
    }
    pair_close(e);
}

/* One side leaves in the middle of traffic. It must get away, and the other must not hang. */
static void stop_while_busy(struct pair_end *e)
{
    uint64_t epoch;

    pair_open(e);
    pair_join(e);
    for (epoch = 1; e->rank == 0 || epoch < 10; epoch++) {
        if (!pair_push(e, epoch)) { /* what arrives is of no interest */
            break;
        }
    }
    if (e->rank == 0) {
        (void)pair_expect_error(e, e->options.timeout_ms + 10000);
    }
    pair_close(e);
    pair_meet(e);
}

/* The first completion error is kept, told once and ends the traffic of this rank. */
static void failed_completion(struct pair_end *e)
{
    pair_open(e);
    pair_join(e);
    if (e->rank == 0) {
        const struct gemmar_transport_error *error;

        (void)pair_epochs(e, 1, EPOCHS);
        error = pair_expect_error(e, 10000);
        pair_expect_text(error->text, "status");
        pair_expect_text(error->text, "port 1");
        pair_expect_text(error->text, "gid");
        if (error->peer_rank != 1 || error->qp_number == 0) {
            pair_fail("the error names peer %u qp 0x%x", error->peer_rank, error->qp_number);
        }
        if (strcmp(error->stage, "rdma_write") != 0) {
            pair_fail("stage %s", error->stage);
        }
    }
    pair_meet(e);
    pair_close(e);
}

/* Rank 0 sends nothing, so its flushes are its only sends: none for the empty command of epoch 1,
 * the second one in epoch 3. */
static void failed_flush(struct pair_end *e)
{
    pair_open(e);
    pair_join(e);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        if (e->rank == 1 && !pair_push(e, epoch)) {
            pair_fail_broken(e);
        }
        if (e->rank == 0 && pair_take(e, epoch) != (epoch < 3)) {
            pair_fail("epoch %llu: a flush failed where it should not, or not where it should",
                      (unsigned long long)epoch);
        }
        pair_meet(e);
    }
    if (e->rank == 0) {
        const struct gemmar_transport_error *error;

        (void)pair_push(e, 4); /* into a channel that is broken */
        error = pair_expect_error(e, 10000);
        pair_expect_text(error->text, "flush failed: device");
        pair_expect_text(error->text, "status 10");
        if (error->peer_rank != 1 || error->qp_number == 0 ||
            strcmp(error->stage, "arrival") != 0) {
            pair_fail("the error names peer %u qp 0x%x stage %s", error->peer_rank,
                      error->qp_number, error->stage);
        }
        if (e->stamps[8] == 3) {
            pair_fail("the stamp was written although its flush had failed");
        }
    }
    pair_meet(e);
    pair_close(e);
}

/* Rank 0 writes with a wrong key. Rank 1 sends nothing that could fail, and must be told all the
 * same, long before any deadline. */
static void peers_wrong_key(struct pair_end *e)
{
    const struct gemmar_transport_error *error;

    pair_open(e);
    pair_join(e);
    if (e->rank == 0) {
        (void)pair_push(e, 2); /* slot 0 has a byte */
        error = pair_expect_error(e, 10000);
        pair_expect_text(error->text, "remote key or bounds");
    } else {
        while (gemmar_load_acquire(&e->abort_word) == 0) {
            pair_sleep_ms(1); /* the case has a deadline */
        }
        (void)pair_push(e, 2); /* into a channel that is broken */
        error = pair_expect_error(e, 0);
        pair_expect_text(error->text, "local access violation work queue error");
        if (error->peer_rank != 0 || error->qp_number == 0 ||
            strcmp(error->stage, "ib_event") != 0) {
            pair_fail("the error names peer %u qp 0x%x stage %s", error->peer_rank,
                      error->qp_number, error->stage);
        }
    }
    pair_meet(e);
    pair_close(e);
}

static void refused_post(struct pair_end *e)
{
    pair_open(e);
    pair_join(e);
    if (e->rank == 0) {
        (void)pair_epochs(e, 1, EPOCHS);
        pair_expect_text(pair_expect_error(e, 10000)->text, "Invalid argument");
    }
    pair_meet(e);
    pair_close(e);
}

static void bad_command(struct pair_end *e, const struct gemmar_fifo_request *r, const char *part)
{
    pair_open(e);
    pair_join(e);
    pair_expect_epochs(e, 1, 2);
    pair_expect_counters(e, 2);
    if (e->rank == 0) {
        if (!gemmar_fifo_produce(&e->ring, &e->ticket, &e->known_tail, r, NULL)) {
            pair_fail("the ring is full");
        }
        pair_expect_text(pair_expect_error(e, 10000)->text, part);
    }
    pair_meet(e);
    pair_expect_guards(e);
    pair_close(e);
}

static void command_beyond_window(struct pair_end *e)
{
    struct gemmar_fifo_request r = {.offset = 8 * 4096 - 128, .length = 129, .epoch = 3};

    bad_command(e, &r, "window");
}

static void command_for_no_slot(struct pair_end *e)
{
    struct gemmar_fifo_request r = {.length = 16, .slot = 8, .epoch = 3};

    bad_command(e, &r, "slot");
}

static void command_for_no_route(struct pair_end *e)
{
    struct gemmar_fifo_request r = {.length = 16, .route = 1, .epoch = 3};

    bad_command(e, &r, "route");
}

/* Every byte of the blob that means something is looked at. */
static void bad_blob(struct pair_end *e)
{
    char blob[GEMMAR_CONNECT_BLOB_BYTES];
    static const size_t at[] = {0, 8, 12, 16, 48, 52, 56, 60, 64, 68};

    pair_open(e);
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
        int rc;

        memset(blob, 0, sizeof(blob));
        if (e->table->channel_blob(e->channel, 0, blob) != 0) {
            pair_fail("channel_blob");
        }
        blob[at[i]] = (char)(blob[at[i]] ^ 0x40);
        rc = e->table->channel_connect(e->channel, 0, blob);
        if (rc >= 0) {
            pair_fail("a blob with byte %zu changed was taken", at[i]);
        }
    }
    pair_close(e);
}

static void run(const char *command)
{
    if (system(command) != 0) {
        pair_fail("%s failed", command);
    }
}

/* A port that is down for a short time while nothing is sent does no harm. */
static void port_flap(struct pair_end *e)
{
    pair_open(e);
    pair_join(e);
    pair_expect_epochs(e, 1, 3);
    pair_expect_counters(e, 3);
    pair_meet(e);
    if (e->rank == 0) {
        run(e->program->port_down);
        pair_sleep_ms(300);
        run(e->program->port_up);
        pair_sleep_ms(300);
    }
    pair_meet(e);
    pair_expect_epochs(e, 4, 3);
    pair_meet(e);
    pair_close(e);
}

/* A port that stays down breaks the channel that uses it. */
static void port_down(struct pair_end *e)
{
    pair_open(e);
    pair_join(e);
    pair_expect_epochs(e, 1, 3);
    pair_meet(e);
    if (e->rank == 0) {
        run(e->program->port_down);
        (void)pair_push(e, 4);
        (void)pair_expect_error(e, e->options.timeout_ms + 10000);
        run(e->program->port_up);
    }
    pair_meet(e);
    pair_close(e);
}

static const char *only;

static void one(const struct pair_program *p, const char *name, struct pair_options options,
                pair_body body, int ends_with_1)
{
    if (only != NULL && strstr(name, only) == NULL) {
        return;
    }
    pair_case(p, name, &options, body, ends_with_1);
}

static void data_cases(const struct pair_program *p)
{
    one(p, "one queue pair", (struct pair_options){0}, traffic, 0);
    one(p, "ring of one entry", (struct pair_options){.ring_entries = 1}, traffic, 0);
    one(p, "flag before data: four queue pairs, two routes",
        (struct pair_options){.queue_pairs = 4, .routes = 2, .slots = 13}, traffic, 0);
    one(p, "imm: four queue pairs, two routes",
        (struct pair_options){
            .queue_pairs = 4, .routes = 2, .slots = 13, .signal = GEMMAR_SIGNAL_IMM},
        traffic, 0);
    one(p, "full send queue: a ring of 1024 entries, 300 slots",
        (struct pair_options){.ring_entries = 1024, .slots = 300, .slot_bytes = 256}, traffic, 0);
    one(p, "imm: full send queue",
        (struct pair_options){
            .ring_entries = 1024, .slots = 300, .slot_bytes = 256, .signal = GEMMAR_SIGNAL_IMM},
        traffic, 0);
    one(p, "slots of 1 MiB",
        (struct pair_options){.queue_pairs = 2, .slots = 3, .slot_bytes = 1 << 20}, traffic, 0);
    one(p, "epoch over 2^31", (struct pair_options){.first_epoch = (UINT64_C(1) << 31) - 3},
        traffic, 0);
    one(p, "stale epoch: over 2^32",
        (struct pair_options){.queue_pairs = 2, .first_epoch = (UINT64_C(1) << 32) - 3}, traffic,
        0);
    one(p, "imm: epoch over 2^32",
        (struct pair_options){
            .queue_pairs = 2, .first_epoch = (UINT64_C(1) << 32) - 3, .signal = GEMMAR_SIGNAL_IMM},
        traffic, 0);
    one(p, "imm: data that must be flushed",
        (struct pair_options){.queue_pairs = 4,
                              .routes = 2,
                              .ring_entries = 1024,
                              .slots = 150,
                              .slot_bytes = 256,
                              .signal = GEMMAR_SIGNAL_IMM,
                              .gpu = true},
        traffic, 0);
    one(p, "nothing stays after close: flushes",
        (struct pair_options){.queue_pairs = 2, .signal = GEMMAR_SIGNAL_IMM, .gpu = true},
        open_and_close, 0);
    one(p, "nothing stays after close", (struct pair_options){.queue_pairs = 2}, open_and_close, 0);
}

static void refusal_cases(const struct pair_program *p)
{
    one(p, "command beyond its window", (struct pair_options){.log = "rank"}, command_beyond_window,
        0);
    one(p, "command for no slot", (struct pair_options){.log = "rank"}, command_for_no_slot, 0);
    one(p, "command for no route", (struct pair_options){.log = "rank"}, command_for_no_route, 0);
    one(p, "blob that is none", (struct pair_options){.log = ":"}, bad_blob, 0);
}

static void end_cases(const struct pair_program *p)
{
    struct pair_options short_wait = {
        .queue_pairs = 2, .timeout_ms = 3000, .ib_timeout = 14, .log = ":"};

    one(p, "stopped peer comes back", (struct pair_options){.queue_pairs = 2}, traffic_with_a_stop,
        0);
    one(p, "killed peer", short_wait, killed_peer, SIGKILL);
    if (p->softhca) { /* elsewhere the adapter answers for a process that is stopped */
        one(p, "stopped peer stays away", short_wait, stopped_peer, 0);
    }
    one(p, "stop while busy", short_wait, stop_while_busy, 0);
    if (p->port_down != NULL && p->port_up != NULL) {
        one(p, "port flap while idle", (struct pair_options){.log = ":"}, port_flap, 0);
        one(p, "port stays down", short_wait, port_down, 0);
    }
}

/* Asked for by SOFTHCA_FAULTS. */
static void fault_cases(const struct pair_program *p)
{
    one(p, "flag before data: messages of a queue pair are late",
        (struct pair_options){.queue_pairs = 4, .slots = 16, .faults = "delay every=3 us=3000"},
        traffic, 0);
    one(p, "imm: messages of a queue pair are late",
        (struct pair_options){.queue_pairs = 4,
                              .slots = 16,
                              .signal = GEMMAR_SIGNAL_IMM,
                              .faults = "delay every=3 us=3000"},
        traffic, 0);
    one(p, "lost messages are sent again",
        (struct pair_options){
            .queue_pairs = 2, .ib_timeout = 14, .faults = "drop every=11 count=6"},
        traffic, 0);
    one(p, "lost command after a failed post",
        (struct pair_options){.queue_pairs = 2,
                              .faults = "call name=post_send nth=3 errno=12;"
                                        "call name=post_send nth=7 errno=12"},
        traffic, 0);
    one(p, "post that is refused for good",
        (struct pair_options){.faults = "call name=post_send nth=5 errno=22", .log = ":"},
        refused_post, 0);
    one(p, "failed completion",
        (struct pair_options){.faults = "complete nth=4 status=12", .log = ":"}, failed_completion,
        0);
    one(p, "failed flush",
        (struct pair_options){.slots = 1,
                              .slot_bytes = 4096,
                              .signal = GEMMAR_SIGNAL_IMM,
                              .gpu = true,
                              .faults = "complete nth=2 status=10",
                              .log = ":"},
        failed_flush, 0);
    one(p, "peer's wrong key is told to both ends",
        (struct pair_options){.timeout_ms = 60000, .wrong_key = true, .log = ":"}, peers_wrong_key,
        0);
    one(p, "failed completion among many",
        (struct pair_options){.queue_pairs = 4,
                              .routes = 2,
                              .slots = 30,
                              .faults = "complete nth=9 status=10",
                              .log = ":"},
        failed_completion, 0);
}

static int usage(void)
{
    (void)fprintf(stderr, "usage: transport_pair [--device A,B] [--softhca] [--only TEXT] "
                          "[--port-down CMD --port-up CMD]\n");
    return 2;
}

int main(int argc, char **argv)
{
    static char devices[128];
    struct pair_program p = {0};

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--softhca") == 0) {
            p.softhca = true;
        } else if (i + 1 == argc) {
            return usage();
        } else if (strcmp(argv[i], "--device") == 0) {
            (void)snprintf(devices, sizeof(devices), "%s", argv[++i]);
            p.device[0] = strtok(devices, ",");
            p.device[1] = strtok(NULL, ",");
            p.device[1] = p.device[1] != NULL ? p.device[1] : p.device[0];
        } else if (strcmp(argv[i], "--only") == 0) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--port-down") == 0) {
            p.port_down = argv[++i];
        } else if (strcmp(argv[i], "--port-up") == 0) {
            p.port_up = argv[++i];
        } else {
            return usage();
        }
    }
    data_cases(&p);
    refusal_cases(&p);
    end_cases(&p);
    if (p.softhca) {
        fault_cases(&p);
    }
    return pair_finish();
}
