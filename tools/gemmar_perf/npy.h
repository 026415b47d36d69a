// SPDX-License-Identifier: Apache-2.0
// A strict reader of NumPy's .npy files, versions 1 and 2: matrices only, row-major only.
#ifndef GEMMAR_PERF_NPY_H
#define GEMMAR_PERF_NPY_H

#include <stddef.h>
#include <stdint.h>

enum gemmar_npy_type {
    GEMMAR_NPY_F4, /* '<f4' */
    GEMMAR_NPY_F2, /* '<f2' */
    GEMMAR_NPY_U2, /* '<u2', the bits of bfloat16: NumPy has no name for it */
};

struct gemmar_npy {
    enum gemmar_npy_type type;
    int64_t rows, columns;
    size_t data_offset; /* bytes from the start of the file */
    size_t data_bytes;  /* rows * columns * bytes of an element */
};

/* Read the head of a file. `have` bytes are at `head`, the file is `file_bytes` long; want at least
 * GEMMAR_NPY_HEAD_BYTES or the whole file. 0, or -EINVAL with a sentence in `why` (without the
 * file's name); `out_npy` is then untouched. */
int gemmar_npy_parse(const uint8_t *head, size_t have, uint64_t file_bytes,
                     struct gemmar_npy *out_npy, char *why, size_t why_bytes);

#define GEMMAR_NPY_HEAD_BYTES 65552u /* longest header of version 1 */

/* Read and check the head of the file at `path`. 0 or a negative errno with a sentence. */
int gemmar_npy_open(const char *path, struct gemmar_npy *out_npy, char *why, size_t why_bytes);

/* Read the elements of an opened file into `data` [npy->data_bytes]. */
int gemmar_npy_read(const char *path, const struct gemmar_npy *npy, void *data, char *why,
                    size_t why_bytes);

#endif
