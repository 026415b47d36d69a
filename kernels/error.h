// SPDX-License-Identifier: Apache-2.0
// Results and their sentences: the first error of a communicator, the last one of a thread.
#ifndef GEMMAR_KERNELS_ERROR_H
#define GEMMAR_KERNELS_ERROR_H

#include <stdarg.h>
#include <stdbool.h>

#include <gemmar/gemmar.h>

#define GEMMAR_SENTENCE_BYTES 1024

struct gemmar_error {
    gemmarResult_t result;
    bool fatal; /* the ranks may have come apart: the communicator cannot go on */
    char text[GEMMAR_SENTENCE_BYTES];
};

/* The sentence of this thread's last call without a communicator. */
struct gemmar_error *gemmar_error_thread(void);

/* Make `error` say this; gives back `result`. */
gemmarResult_t gemmar_error_set(struct gemmar_error *error, gemmarResult_t result,
                                const char *format, ...) __attribute__((format(printf, 3, 4)));

void gemmar_error_clear(struct gemmar_error *error);

/* The last warning that this thread logged, for the sentence of the error that it led to;
 * forgetting it makes it "". */
void gemmar_error_note(const char *warning);
const char *gemmar_error_noted(void);

/* Which result a negative errno of an internal function is. */
gemmarResult_t gemmar_error_result(int rc);

#endif
