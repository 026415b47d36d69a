// SPDX-License-Identifier: Apache-2.0
// One matrix product whose sums are exact in every type.
//
// B has at most NONZERO entries of +1 or -1 in a column, A holds -2 .. 2: for up to 8 ranks no
// partial sum, node sum or result leaves -256 .. 256, which bf16 holds exactly.
#include "test/protocol/problem.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "test/protocol/ranks.h"

#define NONZERO 16

static uint32_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return (uint32_t)(x >> 32);
}

static int value_a(const struct problem *p, int rank, int64_t row, int64_t k)
{
    return (int)(mix(p->seed * 31 + (uint64_t)rank * 1000003 + (uint64_t)(row * p->k + k)) % 5) - 2;
}

static int64_t step(const struct problem *p)
{
    return (p->k + NONZERO - 1) / NONZERO;
}

static int64_t first_k(const struct problem *p, int rank, int64_t col)
{
    return mix(p->seed + (uint64_t)rank * 7 + (uint64_t)col * 13) % step(p);
}

/* Of an entry of B that is not 0: there is one for every step. */
static int sign_b(const struct problem *p, int rank, int64_t k, int64_t col)
{
    return mix(p->seed * 17 + (uint64_t)rank + (uint64_t)(k * p->n + col) * 3) & 1 ? 1 : -1;
}

gemmarDataType_t problem_type(gemmarDataType_t datatype)
{
    return datatype == gemmarFloat32 && getenv("PROTOCOL_NO_FP32") != NULL ? gemmarFloat16
                                                                           : datatype;
}

static uint32_t wire(const struct problem *p)
{
    return p->datatype == gemmarFloat16   ? GEMMAR_DTYPE_FP16
           : p->datatype == gemmarFloat32 ? GEMMAR_DTYPE_FP32
                                          : GEMMAR_DTYPE_BF16;
}

struct operands problem_make(const struct problem *p, int rank)
{
    uint32_t dtype = wire(p);
    size_t bytes = gemmar_dtype_bytes(dtype);
    struct operands o = {
        .a = malloc((size_t)(p->m * p->k) * bytes + 1),
        .b = malloc((size_t)(p->k * p->n) * bytes + 1),
        .bytes_c = (uint64_t)(p->m * p->n) * bytes,
    };

    o.c = malloc(o.bytes_c + 1);
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t k = 0; k < p->k; k++) {
            gemmar_store_element(dtype, o.a, i * p->k + k, (float)value_a(p, rank, i, k));
        }
    }
    memset(o.b, 0, (size_t)(p->k * p->n) * bytes);
    for (int64_t j = 0; j < p->n && p->k > 0; j++) {
        for (int64_t k = first_k(p, rank, j); k < p->k; k += step(p)) {
            gemmar_store_element(dtype, o.b, k * p->n + j, (float)sign_b(p, rank, k, j));
        }
    }
    memset(o.c, 0xff, o.bytes_c);
    return o;
}

void problem_free(struct operands *o)
{
    free(o->a);
    free(o->b);
    free(o->c);
}

/* A of every rank: [rank][row][k]. */
static int8_t *all_a(const struct problem *p)
{
    int8_t *a = malloc((size_t)(p->ranks * p->m * p->k) + 1), *next = a;

    for (int r = 0; r < p->ranks; r++) {
        for (int64_t i = 0; i < p->m; i++) {
            for (int64_t k = 0; k < p->k; k++) {
                *next++ = (int8_t)value_a(p, r, i, k);
            }
        }
    }
    return a;
}

/* The entries of one column of every rank's B that are not 0. */
struct entry {
    const int8_t *a; /* what it is multiplied by, in row 0 */
    int sign;
};

static int entries(const struct problem *p, const int8_t *a, int64_t col, struct entry *entry)
{
    int count = 0;

    for (int r = 0; r < p->ranks && p->k > 0; r++) {
        for (int64_t k = first_k(p, r, col); k < p->k; k += step(p)) {
            entry[count++] = (struct entry){a + r * p->m * p->k + k, sign_b(p, r, k, col)};
        }
    }
    return count;
}

/* Of memory that no other thread has seen: ThreadSanitizer need not look. */
static __attribute__((no_sanitize("thread"))) int sum_of(const struct entry *entry, int count,
                                                         int64_t offset)
{
    int sum = 0;

    for (int e = 0; e < count; e++) {
        sum += entry[e].sign * entry[e].a[offset];
    }
    return sum;
}

int64_t problem_wrong(const struct problem *p, const struct operands *o)
{
    struct entry entry[RANKS_MAX * NONZERO];
    uint32_t dtype = wire(p);
    int8_t *a = all_a(p);
    int64_t wrong = 0;

    for (int64_t j = 0; j < p->n; j++) {
        int count = entries(p, a, j, entry);

        for (int64_t i = 0; i < p->m; i++) {
            float want = (float)sum_of(entry, count, i * p->k);

            wrong += gemmar_load_element(dtype, o->c, i * p->n + j) != want;
        }
    }
    free(a);
    return wrong;
}

uint64_t problem_hash(const struct operands *o)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325), word;

    for (uint64_t i = 0; i < o->bytes_c; i += sizeof(word)) {
        word = 0;
        memcpy(&word, (const char *)o->c + i,
               o->bytes_c - i < sizeof(word) ? o->bytes_c - i : sizeof(word));
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        hash ^= hash >> 32; /* upper bits reach the lower ones too */
    }
    return hash;
}
