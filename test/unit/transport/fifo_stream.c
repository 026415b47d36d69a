// SPDX-License-Identifier: Apache-2.0
// The FIFO alone: one producer thread, one consumer that checks every command.
#include "fifo_stream.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "transport/fifo.h"
#include "transport/order.h"
#include "transport/wait.h"

#define BATCH      32
#define TIMEOUT_NS UINT64_C(10000000000)

struct producer {
    const struct gemmar_fifo_ring *ring;
    uint64_t commands;
    uint64_t start_ns; /* writer: the producer; reader: who joined it */
    uint64_t abort;    /* writer: the consumer, release; reader: the producer, acquire */
};

void fifo_stream_command(uint64_t i, struct gemmar_fifo_request *out)
{
    out->offset = (i & ((UINT64_C(1) << GEMMAR_FIFO_OFFSET_BITS) - 1)) * GEMMAR_FIFO_OFFSET_UNIT;
    out->length = (uint32_t)(i * 3) & ((1u << GEMMAR_FIFO_LENGTH_BITS) - 1);
    out->slot = (uint32_t)(i * 5) & ((1u << GEMMAR_FIFO_SLOT_BITS) - 1);
    out->route = (uint32_t)(i >> 3) & ((1u << GEMMAR_FIFO_ROUTE_BITS) - 1);
    out->epoch = (uint32_t)(i * 2654435761u);
}

static void *produce(void *user)
{
    struct producer *p = user;
    uint64_t ticket = 0, known_tail = 0;

    p->start_ns = gemmar_now_ns();
    for (uint64_t i = 0; i < p->commands; i++) {
        struct gemmar_fifo_request request;

        fifo_stream_command(i, &request);
        if (!gemmar_fifo_produce(p->ring, &ticket, &known_tail, &request, &p->abort)) {
            break;
        }
    }
    return NULL;
}

static bool same(const struct gemmar_fifo_request *a, const struct gemmar_fifo_request *b)
{
    return a->offset == b->offset && a->length == b->length && a->slot == b->slot &&
           a->route == b->route && a->epoch == b->epoch;
}

static int consume(struct gemmar_fifo *fifo, uint64_t commands, struct fifo_stream *out)
{
    uint32_t most = fifo->ring.entries < BATCH ? fifo->ring.entries : BATCH;
    struct gemmar_wait wait;

    gemmar_wait_init(&wait, TIMEOUT_NS);
    while (out->commands < commands) {
        uint32_t taken = 0;

        for (; taken < most; taken++) {
            struct gemmar_fifo_request got, want;

            if (!gemmar_fifo_peek(fifo, taken, &got)) {
                break;
            }
            fifo_stream_command(out->commands + taken, &want);
            out->wrong += !same(&got, &want);
        }
        if (taken != 0) {
            gemmar_fifo_advance(fifo, taken);
            out->commands += taken;
            if (wait.steps != 0) {
                gemmar_wait_init(&wait, TIMEOUT_NS);
            }
        } else if (!gemmar_wait_step(&wait)) {
            return -ETIMEDOUT;
        }
    }
    return 0;
}

int fifo_stream_run(uint64_t commands, uint32_t entries, struct fifo_stream *out)
{
    struct fifo_stream result = {0};
    struct producer producer = {.commands = commands};
    struct gemmar_fifo fifo;
    pthread_t thread;
    uint64_t end_ns;
    int rc = gemmar_fifo_open(entries, &fifo);

    if (rc != 0) {
        return rc;
    }
    producer.ring = &fifo.ring;
    rc = -pthread_create(&thread, NULL, produce, &producer);
    if (rc != 0) {
        goto undo_fifo;
    }
    rc = consume(&fifo, commands, &result);
    end_ns = gemmar_now_ns();
    if (rc != 0) {
        gemmar_store_release(&producer.abort, 1);
    }
    (void)pthread_join(thread, NULL); /* it is a joinable thread of ours */
    result.ns = end_ns - producer.start_ns;
    if (rc == 0) {
        *out = result;
    }
undo_fifo:
    gemmar_fifo_close(&fifo);
    return rc;
}
