// SPDX-License-Identifier: Apache-2.0
// The command ring alone: one producer thread, one consumer that takes commands as the proxy does,
// in batches, and compares every one with what it must be.
#include "tools/gemmar_perf/fifo.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_perf/inputs.h"
#include "tools/gemmar_perf/report.h"
#include "tools/gemmar_perf/say.h"
#include "transport/fifo.h"
#include "transport/order.h"
#include "transport/wait.h"

#define ENTRIES   4096u /* the default of GEMMAR_RING_ENTRIES */
#define BATCH     64u
#define COMMANDS  UINT64_C(20000000)
#define TIMEOUT_S UINT64_C(60)

struct bench {
    struct gemmar_fifo fifo;
    /* Set when the consumer gives up. Writer: consumer (release). Reader: producer (acquire). */
    uint64_t abort_word;
    uint64_t wrong;
    double seconds;
};

/* What the command at a position says: every field changes from one to the next. */
static struct gemmar_fifo_request expected(uint64_t position)
{
    uint64_t x = position * UINT64_C(0x9e3779b97f4a7c15);

    return (struct gemmar_fifo_request){
        .offset = (x & ((UINT64_C(1) << GEMMAR_FIFO_OFFSET_BITS) - 1)) * GEMMAR_FIFO_OFFSET_UNIT,
        .length = (uint32_t)(x >> 38 & ((1u << GEMMAR_FIFO_LENGTH_BITS) - 1)),
        .slot = (uint32_t)(x >> 43 & ((1u << GEMMAR_FIFO_SLOT_BITS) - 1)),
        .route = (uint32_t)(x >> 54 & ((1u << GEMMAR_FIFO_ROUTE_BITS) - 1)),
        .epoch = (uint32_t)position,
    };
}

static void *produce(void *argument)
{
    struct bench *b = argument;
    uint64_t ticket = 0, known_tail = 0;

    for (uint64_t i = 0; i < COMMANDS; i++) {
        struct gemmar_fifo_request r = expected(i);

        if (!gemmar_fifo_produce(&b->fifo.ring, &ticket, &known_tail, &r, &b->abort_word)) {
            break;
        }
    }
    return NULL;
}

static void handle(struct bench *b, uint64_t position, const struct gemmar_fifo_request *r)
{
    struct gemmar_fifo_request want = expected(position);

    b->wrong += (r->offset != want.offset) | (r->length != want.length) | (r->slot != want.slot) |
                (r->route != want.route) | (r->epoch != want.epoch);
}

/* 0, or -ETIMEDOUT when the producer falls silent. */
static int consume(struct bench *b)
{
    struct gemmar_wait wait;
    uint64_t done = 0;

    gemmar_wait_init(&wait, TIMEOUT_S * 1000000000u);
    while (done < COMMANDS) {
        struct gemmar_fifo_request r;
        uint32_t taken = 0;

        while (taken < BATCH && gemmar_fifo_peek(&b->fifo, taken, &r)) {
            handle(b, done + taken, &r);
            taken++;
        }
        if (taken != 0) {
            gemmar_fifo_advance(&b->fifo, taken);
            done += taken;
            gemmar_wait_init(&wait, TIMEOUT_S * 1000000000u);
        } else if (!gemmar_wait_step(&wait)) {
            return -ETIMEDOUT;
        }
    }
    return 0;
}

static int run(struct bench *b)
{
    pthread_t thread;
    double start;
    int rc = pthread_create(&thread, NULL, produce, b);

    if (rc != 0) {
        gemmar_perf_say("cannot start a thread: %s", strerror(rc));
        return 1;
    }
    start = gemmar_perf_seconds();
    rc = consume(b);
    b->seconds = gemmar_perf_seconds() - start;
    gemmar_store_release(&b->abort_word, 1);
    (void)pthread_join(thread, NULL); /* a joinable thread of this process */
    if (rc != 0) {
        gemmar_perf_say("the producer fell silent");
    }
    return rc != 0;
}

static int write_json(const char *path, const struct bench *b, char **argv)
{
    FILE *out = fopen(path, "ae");
    char text[4096];
    int bad;

    if (out == NULL) {
        gemmar_perf_say("cannot write %s: %s", path, strerror(errno));
        return 1;
    }
    (void)fprintf(out, "{\"bench\": \"fifo\"");
    gemmar_perf_json_number(out, "commands_per_s", (double)COMMANDS / b->seconds);
    (void)fprintf(out, ", \"wrong\": %llu, \"instructions_per_command\": null, \"commit\": ",
                  (unsigned long long)b->wrong);
    gemmar_perf_json_text(out, gemmar_perf_commit());
    gemmar_perf_machine(text, sizeof(text));
    (void)fprintf(out, ", \"machine\": ");
    gemmar_perf_json_text(out, text);
    gemmar_perf_command(argv, text, sizeof(text));
    (void)fprintf(out, ", \"command\": ");
    gemmar_perf_json_text(out, text);
    (void)fprintf(out, "}\n");
    bad = ferror(out);
    if (fclose(out) != 0 || bad) {
        gemmar_perf_say("cannot write %s", path);
        return 1;
    }
    return 0;
}

int gemmar_perf_fifo(const struct gemmar_perf_options *o, char **argv)
{
    static struct bench b;
    int status;

    if (gemmar_fifo_open(ENTRIES, &b.fifo) != 0) {
        gemmar_perf_say("no memory for the ring");
        return 1;
    }
    status = run(&b);
    if (status == 0) {
        (void)printf("# fifo: %u entries, 1 producer thread, batches of up to %u\n", ENTRIES,
                     BATCH);
        (void)printf("%.2f million commands/s, %llu wrong of %llu\n",
                     (double)COMMANDS / b.seconds / 1e6, (unsigned long long)b.wrong,
                     (unsigned long long)COMMANDS);
        status = o->json != NULL ? write_json(o->json, &b, argv) : 0;
    }
    gemmar_fifo_close(&b.fifo);
    return status != 0 || b.wrong != 0;
}
