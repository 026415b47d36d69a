// SPDX-License-Identifier: Apache-2.0
// Words to device memory that come after copies, and how it is known what has ended. A stream of
// its own waits for the copies and writes: stamps into device memory, and how far it is into a word
// of host memory. So nothing waits for a stamp but who looks for it, and looking for the end of a
// copy is a load, not a call of the driver.
#include <errno.h>

#include "tools/softhca/cuda_gpu.h"
#include "tools/softhca/sync.h"

#define CHECK_NS 2000000u // nothing has ended for so long: does the device still work?

int softhca_cuda_wait(struct softhca_gpu *gpu, void *stream)
{
    int error = gpu->cu->stream_wait(stream);
    return error ? softhca_cuda_fail(gpu->cu, "a copy failed", error) : 0;
}

static void lose(struct softhca_gpu *gpu, const char *what, int error)
{
    if (!gpu->lost) {
        (void)softhca_cuda_fail(gpu->cu, what, error);
    }
    gpu->lost = 1;
}

// Words of the open group from i on that wait for no more than is waited for. Returns their end.
static uint32_t together(const struct softhca_gpu *gpu, uint32_t i, uint32_t end)
{
    while (i < end && (gpu->after[i] <= gpu->waited || gpu->after[i] <= gpu->ended)) {
        i++;
    }
    return i;
}

// The first `end` words of the open group.
static void write_words(struct softhca_gpu *gpu, uint32_t end)
{
    uint32_t i = 0, next;
    if (gpu->lost || softhca_cuda_enter(gpu)) {
        gpu->lost = 1;
        return;
    }
    while (i < end && !gpu->lost) {
        int error = 0;
        next = together(gpu, i, end);
        if (next == i) {
            gpu->waited = gpu->after[i];
            error =
                gpu->cu->wait_event(gpu->words, gpu->events[gpu->waited % SOFTHCA_CUDA_MARKS], 0);
        } else {
            error = gpu->cu->write_words(gpu->words, next - i, gpu->word + i, 0);
        }
        if (error) {
            lose(gpu, "a word could not be written", error);
        }
        i = next;
    }
    gpu->busy = 1;
    softhca_cuda_leave(gpu);
}

static void add_word(struct softhca_gpu *gpu, uint64_t addr, uint64_t value, uint32_t len,
                     uint64_t after)
{
    gpu->word[gpu->word_count] = (struct softhca_cuda_word){
        .operation = len == 8 ? SOFTHCA_CUDA_WRITE_64 : SOFTHCA_CUDA_WRITE_32,
        .addr = addr,
        .value = value};
    gpu->after[gpu->word_count++] = after;
}

// The word that tells about this group and all before it: one at a time is under way.
static void ask(struct softhca_gpu *gpu, int all)
{
    if (gpu->asked > gpu->told || gpu->wanted <= gpu->asked || (!all && gpu->need >= gpu->batch)) {
        return;
    }
    add_word(gpu, (uintptr_t)gpu->done, gpu->flush, 8, gpu->need);
    gpu->asked = gpu->flush;
    gpu->asked_batch = gpu->need;
    gpu->asked_ns = softhca_now_ns();
}

static void flush(struct softhca_gpu *gpu, int all)
{
    uint32_t end = 0;
    while (!all && end < gpu->word_count && gpu->after[end] < gpu->batch) {
        end++;
    }
    if (all || end == gpu->word_count) {
        ask(gpu, all);
        end = gpu->word_count;
    }
    if (!end) {
        return;
    }
    for (uint32_t i = 0; i < end; i++) {
        if (gpu->after[i] == gpu->batch) {
            softhca_cuda_start(gpu); // it has no event to wait for before
        }
    }
    write_words(gpu, end);
    gpu->word_count -= end;
    for (uint32_t i = 0; i < gpu->word_count; i++) {
        gpu->word[i] = gpu->word[i + end];
        gpu->after[i] = gpu->after[i + end];
    }
    gpu->flush += !gpu->word_count;
}

void softhca_cuda_flush_all(int all)
{
    for (struct softhca_gpu *g = softhca_cuda_gpus(); g; g = g->next) {
        flush(g, all);
    }
}

void softhca_cuda_word_comes(struct softhca_gpu *gpu, const void *at, uint32_t len)
{
    uint64_t first = (uintptr_t)at, end = first + len;
    gpu->first_word = first < gpu->first_word ? first : gpu->first_word;
    gpu->end_word = end > gpu->end_word ? end : gpu->end_word;
}

int softhca_cuda_word_near(const struct softhca_gpu *gpu, const void *at, uint64_t len)
{
    return (uintptr_t)at < gpu->end_word && gpu->first_word < (uintptr_t)at + len;
}

void softhca_cuda_no_words(void)
{
    for (struct softhca_gpu *g = softhca_cuda_gpus(); g; g = g->next) {
        g->first_word = UINT64_MAX;
        g->end_word = 0;
    }
}

void softhca_cuda_word(struct softhca_gpu *gpu, void *to, uint64_t value, uint32_t len,
                       uint64_t after)
{
    if (gpu->word_count == SOFTHCA_CUDA_WORDS) {
        flush(gpu, 1);
    }
    softhca_cuda_word_comes(gpu, to, len);
    add_word(gpu, (uintptr_t)to, value, len, after);
}

uint64_t softhca_cuda_follow(struct softhca_gpu *gpu, uint64_t last, int has_word)
{
    if (!has_word && last <= gpu->ended) {
        return gpu->told;
    }
    gpu->need = last > gpu->need ? last : gpu->need;
    gpu->wanted = gpu->flush;
    return gpu->flush;
}

static void has_ended(struct softhca_gpu *gpu, uint64_t number, uint64_t batch)
{
    gpu->told = number;
    if (batch > gpu->ended) {
        gpu->ended = batch;
        gpu->ring_free = gpu->ring_at[batch % SOFTHCA_CUDA_MARKS];
    }
}

// The device says nothing more: has it failed?
static void check(struct softhca_gpu *gpu)
{
    uint64_t now = softhca_now_ns();
    if (now - gpu->asked_ns < CHECK_NS || softhca_cuda_enter(gpu)) {
        return;
    }
    gpu->asked_ns = now;
    int error = gpu->cu->event_query(gpu->events[(gpu->batch - 1) % SOFTHCA_CUDA_MARKS]);
    softhca_cuda_leave(gpu);
    if (error && error != SOFTHCA_CUDA_NOT_READY) {
        lose(gpu, "a copy failed", error);
    }
}

int softhca_cuda_passed(struct softhca_gpu *gpu, uint64_t number, uint64_t first, uint64_t last)
{
    uint64_t done = SOFTHCA_LOAD_ACQUIRE(gpu->done);
    if (done > gpu->told) {
        has_ended(gpu, done, gpu->asked_batch);
    }
    if (gpu->asked > gpu->told) {
        check(gpu);
    }
    if (gpu->lost) {
        return -EIO;
    }
    if (gpu->told < number) {
        return 0;
    }
    for (uint64_t n = first; n && n <= last && n - first < SOFTHCA_CUDA_MARKS; n++) {
        if (gpu->failed[n % SOFTHCA_CUDA_MARKS]) {
            return -EIO;
        }
    }
    return 1;
}

static int drain(struct softhca_gpu *gpu)
{
    int err = softhca_cuda_wait(gpu, gpu->pulls);
    err = err ? err : softhca_cuda_wait(gpu, gpu->words);
    if (err) {
        gpu->lost = 1;
        return err;
    }
    has_ended(gpu, gpu->flush, gpu->batch - 1);
    gpu->asked = gpu->flush++;
    gpu->asked_batch = gpu->ended;
    gpu->ring_free = gpu->ring_pos;
    gpu->busy = 0;
    return 0;
}

int softhca_cuda_drain(struct softhca_gpu *gpu)
{
    softhca_cuda_start(gpu);
    flush(gpu, 1);
    if (!gpu->busy) {
        return 0;
    }
    int err = softhca_cuda_enter(gpu);
    if (err) {
        return err;
    }
    err = drain(gpu);
    softhca_cuda_leave(gpu);
    return err;
}

void softhca_cuda_drain_all(void)
{
    for (struct softhca_gpu *g = softhca_cuda_gpus(); g; g = g->next) {
        (void)softhca_cuda_drain(g); // a failure shows at the messages
    }
}
