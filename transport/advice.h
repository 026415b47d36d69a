// SPDX-License-Identifier: Apache-2.0
// What a user can do about an error that a limit of the system may have caused.
#ifndef GEMMAR_ADVICE_H
#define GEMMAR_ADVICE_H

#include <stddef.h>
#include <stdint.h>

#define GEMMAR_ADVICE_BYTES 160

/*
 * Advice behind the text of a positive errno, which begins with "; ", or "": the limit, its value
 * and the remedy. `bytes` is what the call would have locked or the file held, 0: not known.
 * ENOMEM names RLIMIT_MEMLOCK only when the limit is near: most failures for want of memory have
 * another cause. EMFILE names RLIMIT_NOFILE, EAGAIN (of a thread) RLIMIT_NPROC, and
 * EFBIG (of a file of `bytes`) RLIMIT_FSIZE when it is below them. Returns `text`.
 */
const char *gemmar_advice_limit(int error, uint64_t bytes, char *text, size_t room);

#endif
