// SPDX-License-Identifier: Apache-2.0
// What a call has to compute, in plain loops in one place: for tests and tools.
#ifndef GEMMAR_KERNELS_REF_REFERENCE_H
#define GEMMAR_KERNELS_REF_REFERENCE_H

#include <stdint.h>

/* The operands of all ranks. Rank (node, local) has index node * locals + local. */
struct gemmar_ref_problem {
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    uint32_t dtype; /* enum gemmar_dtype */
    uint32_t trans_b;
    uint32_t nodes, locals;
    float alpha, beta;
    const void *const *a; /* [nodes * locals], each [m,k] */
    const void *const *b; /* [nodes * locals], each [k,n], or [n,k] with trans_b */
    const void *bias;     /* [n], or NULL */
    const void *old_c;    /* [m,n], ldc: C before the call; read when beta is not 0 */
};

/*
 * C as docs/design.md section 6 rounds it: partials in the order of k, node sums in the order of
 * local ranks, the result in the order of nodes, each summed in fp32 and rounded once. Both
 * algorithms and every plan must give these bits. c [m,n] in dtype, ldc. 0, or -ENOMEM.
 */
int gemmar_ref_protocol(const struct gemmar_ref_problem *problem, void *c);

/*
 * C in fp64 and how far a correct result may lie from it (docs/design.md section 6); both [m,n],
 * dense.
 */
void gemmar_ref_exact(const struct gemmar_ref_problem *problem, double *value, double *bound);

#endif
