// SPDX-License-Identifier: Apache-2.0
// test/kernel/oracle.cu on emulated GPUs.
#include "test/kernel/oracle_element.h"

#include "test/emulated/gpu.h"

/* Behind what is in the stream, at once. */
static cudaError_t enqueue(cudaStream_t stream, std::function<void()> work)
{
    emulated_enqueue(stream, [=] {
        work();
        return true;
    });
    return cudaSuccess;
}

extern "C" cudaError_t oracle_fill(void *x, int64_t elements, int bf16, enum oracle_numbers numbers,
                                   uint64_t seed, cudaStream_t stream)
{
    return enqueue(stream, [=] {
        for (int64_t i = 0; i < elements; i++) {
            ((uint16_t *)x)[i] = oracle_input(i, bf16, numbers, seed);
        }
    });
}

extern "C" cudaError_t oracle_check(const struct oracle *o, const void *c,
                                    enum oracle_numbers numbers, struct oracle_verdict *verdict,
                                    cudaStream_t stream)
{
    struct oracle want = *o;

    return enqueue(stream, [=] {
        for (int64_t row = 0; row < want.m; row += want.row_step) {
            for (int64_t col = 0; col < want.n; col++) {
                float of_bound;
                uint64_t part;

                if (!oracle_judge(&want, (const uint16_t *)c, row, col, numbers, &of_bound,
                                  &part)) {
                    verdict->wrong++;
                    verdict->first = (unsigned long long)(row * want.n + col) + 1;
                }
                verdict->hash += part;
                verdict->worst = of_bound > verdict->worst ? of_bound : verdict->worst;
            }
        }
    });
}

extern "C" cudaError_t oracle_guard(const void *from, int64_t words, uint16_t pattern,
                                    struct oracle_verdict *verdict, cudaStream_t stream)
{
    return oracle_padding(from, 1, 0, words, pattern, verdict, stream);
}

extern "C" cudaError_t oracle_padding(const void *c, int64_t rows, int64_t columns, int64_t ld,
                                      uint16_t pattern, struct oracle_verdict *verdict,
                                      cudaStream_t stream)
{
    return enqueue(stream, [=] {
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t i = columns; i < ld; i++) {
                verdict->wrong += ((const uint16_t *)c)[r * ld + i] != pattern;
            }
        }
    });
}

extern "C" cudaError_t oracle_same(const void *a, const void *b, int64_t words,
                                   struct oracle_verdict *verdict, cudaStream_t stream)
{
    return enqueue(stream, [=] {
        for (int64_t i = 0; i < words; i++) {
            verdict->wrong += ((const uint16_t *)a)[i] != ((const uint16_t *)b)[i];
        }
    });
}

/* A cycle is a look at the stream. */
extern "C" cudaError_t oracle_gate(const uint32_t *gate, uint32_t value, int64_t cycles,
                                   cudaStream_t stream)
{
    emulated_enqueue(stream, [=]() mutable { return *gate == value && cycles-- <= 0; });
    return cudaSuccess;
}

extern "C" cudaError_t oracle_load(void)
{
    return cudaSuccess;
}
