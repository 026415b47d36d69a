// SPDX-License-Identifier: Apache-2.0
// A problem of checkcomm: small whole numbers, so that every sum is exact in 16 bits and results
// are compared for equality.
#include <stdlib.h>
#include <string.h>

#include "test/kernel/checkcomm.h"

const struct shape shapes[SHAPES] = {{1, 1, 1},       {17, 33, 5},    {64, 1024, 24},
                                     {128, 256, 32},  {100, 300, 24}, {257, 511, 17},
                                     {512, 1024, 32}, {5, 7, 0},      {70, 133, 9}};

/* Small whole numbers as 16-bit floats. */
static uint16_t to_16(int v, bool bf16)
{
    uint32_t u;
    float x = (float)v;
    int sign = v < 0, e = 0;

    if (bf16) {
        memcpy(&u, &x, 4);
        return (uint16_t)(u >> 16);
    }
    if (v == 0) {
        return 0;
    }
    for (v = sign ? -v : v; v >> (e + 1) != 0; e++) {
    }
    return (uint16_t)(sign << 15 | (e + 15) << 10 | ((v << 10 >> e) & 1023));
}

static int element(int rank, int which, int64_t i)
{
    uint64_t h = ((uint64_t)i + 1) * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)(rank * 8 + which);

    h ^= h >> 29;
    h *= UINT64_C(0xBF58476D1CE4E5B9);
    h ^= h >> 32;
    return (int)(h % 3) - 1;
}

static uint16_t *upload(struct rank *r, int owner, int which, int64_t count, bool bf16)
{
    uint16_t *host = malloc((size_t)count * 2 + 2), *device = NULL;

    for (int64_t i = 0; i < count; i++) {
        host[i] = to_16(element(owner, which, i), bf16);
    }
    cuda(r, cudaMalloc((void **)&device, (size_t)count * 2 + 2), "operand");
    cuda(r, cudaMemcpy(device, host, (size_t)count * 2, cudaMemcpyHostToDevice), "operand");
    free(host);
    return device;
}

static void make_product(struct rank *r, struct problem *p)
{
    struct shape s = p->s;

    p->product = calloc((size_t)(s.m * s.n) + 1, sizeof(int));
    for (int g = 0; g < r->all->ranks; g++) {
        for (int64_t i = 0; i < s.m; i++) {
            for (int64_t k = 0; k < s.k; k++) {
                int a = element(g, 0, i * s.k + k);

                for (int64_t j = 0; a != 0 && j < s.n; j++) {
                    int64_t at = p->trans_b ? j * s.k + k : k * s.n + j;

                    p->product[i * s.n + j] += a * element(g, 1, at);
                }
            }
        }
    }
}

void open_problem(struct rank *r, struct problem *p)
{
    struct shape s = p->s;

    r->step = "allocate";
    p->ldc = p->ldc != 0 ? p->ldc : s.n;
    p->a = upload(r, r->rank, 0, s.m * s.k, p->bf16);
    p->b = upload(r, r->rank, 1, s.k * s.n, p->bf16);
    p->bias = upload(r, 99, 2, s.n, p->bf16);
    p->c = p->c_given;
    if (p->c == NULL) {
        cuda(r, cudaMalloc((void **)&p->c, (size_t)(s.m * p->ldc) * 2 + 2), "C");
    }
    make_product(r, p);
    barrier(r); /* memory is not allocated while the kernel of a peer may wait for mine */
}

void close_problem(struct rank *r, struct problem *p)
{
    r->step = "free";
    (void)cudaFree(p->a);
    (void)cudaFree(p->b);
    (void)cudaFree(p->bias);
    if (p->c_given == NULL) {
        (void)cudaFree(p->c);
    }
    free(p->product);
    barrier(r); /* freeing waits for the GPUs of all threads: no kernel may wait for this one */
}

void set_c(struct rank *r, const struct problem *p, int value)
{
    int64_t count = p->s.m * p->ldc;
    uint16_t *host = malloc((size_t)count * 2);

    for (int64_t i = 0; i < count; i++) {
        host[i] = value == POISON ? 0xffff : to_16(value, p->bf16);
    }
    cuda(r, cudaMemcpy(p->c, host, (size_t)count * 2, cudaMemcpyHostToDevice), "C");
    cuda(r, cudaDeviceSynchronize(), "C");
    free(host);
}

void compare(struct rank *r, const struct problem *p, int times, int plus, bool with_bias,
             const char *what)
{
    int64_t count = p->s.m * p->ldc, wrong = 0, first = -1;
    uint16_t *host = malloc((size_t)count * 2);

    r->step = "compare";
    cuda(r, cudaMemcpy(host, p->c, (size_t)count * 2, cudaMemcpyDeviceToHost), "result");
    for (int64_t i = 0; i < p->s.m; i++) {
        for (int64_t j = 0; j < p->ldc; j++) {
            int want = j < p->s.n ? times * p->product[i * p->s.n + j] + plus +
                                        (with_bias ? element(99, 2, j) : 0)
                                  : 0;
            uint16_t bits = j < p->s.n ? to_16(want, p->bf16) : 0xffff, got = host[i * p->ldc + j];

            if (j < p->s.n && want == 0 && got == 0x8000) {
                got = 0; /* minus zero is zero */
            }
            if (got != bits) {
                first = wrong++ == 0 ? i * p->ldc + j : first;
            }
        }
    }
    check(r, wrong == 0, "%s %ldx%ldx%ld: %ld wrong elements, the first at %ld", what, p->s.m,
          p->s.n, p->s.k, wrong, first);
    free(host);
}

gemmarResult_t call_on(struct rank *r, const struct problem *p, float alpha, float beta, bool bias,
                       cudaStream_t stream)
{
    gemmarFusedArgs_t args = {.size = sizeof(args),
                              .A = p->a,
                              .B = p->b,
                              .C = p->c,
                              .bias = bias ? p->bias : NULL,
                              .M = p->s.m,
                              .N = p->s.n,
                              .K = p->s.k,
                              .ldc = p->ldc,
                              .datatype = p->bf16 ? gemmarBfloat16 : gemmarFloat16,
                              .transB = p->trans_b,
                              .alpha = alpha,
                              .beta = beta};

    gemmarResult_t rc;

    r->step = "call";
    rc = gemmar_fused_ex(&args, r->comm, stream);
    r->step = "after a call";
    return rc;
}

void one_call(struct rank *r, struct shape s, const char *what)
{
    struct problem p = {.s = s, .bf16 = true};

    open_problem(r, &p);
    set_c(r, &p, POISON);
    expect(r, call_on(r, &p, 1, 0, false, r->stream), gemmarSuccess, NULL, what);
    cuda(r, cudaStreamSynchronize(r->stream), what);
    compare(r, &p, 1, 0, false, what);
    close_problem(r, &p);
}
