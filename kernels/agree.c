// SPDX-License-Identifier: Apache-2.0
// One collective step over the caller's all-gather.
#include "kernels/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGREE_MAGIC      0x67616772u
#define AGREE_TEXT_BYTES 496

/* What travels in front of the payload; one layout for every step and release. */
struct status {
    uint32_t magic;
    uint32_t step; /* enum gemmar_agree_step */
    int32_t result;
    uint32_t bytes; /* of the payload */
    char text[AGREE_TEXT_BYTES];
};

static gemmarResult_t look_at(const char *records, size_t stride, int nranks,
                              const struct status *mine, struct gemmar_error *error)
{
    struct status s;

    for (int r = 0; r < nranks; r++) {
        memcpy(&s, records + (size_t)r * stride, sizeof(s));
        if (s.magic != AGREE_MAGIC || s.step != mine->step || s.bytes != mine->bytes) {
            error->fatal = true;
            return gemmar_error_set(error, gemmarInvalidUsage,
                                    "rank %d is in another call (step %u, %u bytes) than this one "
                                    "(step %u, %u bytes)",
                                    r, s.step, s.bytes, mine->step, mine->bytes);
        }
    }
    for (int r = 0; r < nranks; r++) {
        memcpy(&s, records + (size_t)r * stride, sizeof(s));
        if (s.result != gemmarSuccess) {
            s.text[sizeof(s.text) - 1] = '\0';
            return gemmar_error_set(error, (gemmarResult_t)s.result, "rank %d: %s", r, s.text);
        }
    }
    return gemmarSuccess;
}

gemmarResult_t gemmar_agree(const gemmarHostBootstrap_t *bootstrap, enum gemmar_agree_step step,
                            struct gemmar_error *mine, const void *payload, size_t bytes,
                            void *out_all)
{
    size_t stride = sizeof(struct status) + bytes, ranks = (size_t)bootstrap->nranks;
    char *records = calloc(ranks + 1, stride);
    struct status status = {.magic = AGREE_MAGIC,
                            .step = (uint32_t)step,
                            .result = (int32_t)mine->result,
                            .bytes = (uint32_t)bytes};
    gemmarResult_t result;
    int rc;

    if (records == NULL) { /* the others cannot be told: the caller's all-gather has to end them */
        mine->fatal = true;
        return gemmar_error_set(mine, gemmarSystemError, "out of memory for %zu ranks", ranks);
    }
    if (mine->result != gemmarSuccess) {
        (void)snprintf(status.text, sizeof(status.text), "%.*s", AGREE_TEXT_BYTES - 1, mine->text);
    } else if (bytes != 0) {
        memcpy(records + ranks * stride + sizeof(status), payload, bytes);
    }
    memcpy(records + ranks * stride, &status, sizeof(status));
    gemmar_error_note("");
    rc = bootstrap->allGather(bootstrap->context, records + ranks * stride, records, stride);
    if (rc != 0) {
        mine->fatal = true;
        result = mine->result != gemmarSuccess
                     ? mine->result
                     : gemmar_error_set(mine, gemmarSystemError,
                                        "the bootstrap's all-gather of %zu bytes returned %d%s%s",
                                        stride, rc, gemmar_error_noted()[0] != '\0' ? ": " : "",
                                        gemmar_error_noted());
        goto free_records;
    }
    result = look_at(records, stride, bootstrap->nranks, &status, mine);
    for (size_t r = 0; result == gemmarSuccess && bytes != 0 && r < ranks; r++) {
        memcpy((char *)out_all + r * bytes, records + r * stride + sizeof(status), bytes);
    }
free_records:
    free(records);
    return result;
}
