// SPDX-License-Identifier: Apache-2.0
// One collective step over the caller's all-gather, in which every rank also tells how it fares: a
// rank that failed takes part, so that all ranks leave with its sentence instead of waiting.
#ifndef GEMMAR_KERNELS_AGREE_H
#define GEMMAR_KERNELS_AGREE_H

#include <stddef.h>
#include <stdint.h>

#include <gemmar/gemmar.h>

#include "kernels/error.h"

/* The steps, so that ranks that make different calls find out. */
enum gemmar_agree_step {
    GEMMAR_AGREE_HELLO = 1,
    GEMMAR_AGREE_TRANSPORT,
    GEMMAR_AGREE_GROW,
    GEMMAR_AGREE_SEGMENT,
    GEMMAR_AGREE_MAPPED,
    GEMMAR_AGREE_BLOBS,
    GEMMAR_AGREE_STARTED,
    GEMMAR_AGREE_CALL,
    GEMMAR_AGREE_END,
    GEMMAR_AGREE_DEVICE,
    GEMMAR_AGREE_SPLIT,
    GEMMAR_AGREE_FABRIC,
    GEMMAR_AGREE_ATTACHED,
    GEMMAR_AGREE_MEMORY,
    GEMMAR_AGREE_WINDOW,
    GEMMAR_AGREE_DEREGISTER,
    GEMMAR_AGREE_TUNING,
    GEMMAR_AGREE_ADDRESS,
    GEMMAR_AGREE_CONNECTED,
    GEMMAR_AGREE_RATE,
};

/*
 * Gather `bytes` bytes of every rank into `out_all` [nranks * bytes] (bytes may be 0). `mine` is
 * the status of this rank: with an error in it, `payload` is not looked at. Success when all ranks
 * came with success; otherwise `mine` says which rank failed why, on every rank alike, and out_all
 * is not for use. An error of the all-gather itself is gemmarSystemError.
 */
gemmarResult_t gemmar_agree(const gemmarHostBootstrap_t *bootstrap, enum gemmar_agree_step step,
                            struct gemmar_error *mine, const void *payload, size_t bytes,
                            void *out_all);

#endif
