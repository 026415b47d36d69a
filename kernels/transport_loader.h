// SPDX-License-Identifier: Apache-2.0
// Finds the transport's function table in libnccl-net-gemmar.so.
#ifndef GEMMAR_KERNELS_TRANSPORT_LOADER_H
#define GEMMAR_KERNELS_TRANSPORT_LOADER_H

#include <gemmar/transport.h>

#include "kernels/error.h"
#include "transport/log.h"

struct gemmar_transport_library {
    void *handle; /* never unmapped: the library is linked nodelete */
    const struct gemmar_transport_table *table;
};

/*
 * Take the copy that is loaded already (NCCL's, opened by the SONAME), else load `path` (unless
 * ""), else the file beside this library, beside it in the build tree, or on the search path. A
 * table of another version or build is refused with both named.
 */
gemmarResult_t gemmar_transport_library_open(const char *path, const struct gemmar_logger *log,
                                             struct gemmar_transport_library *out,
                                             struct gemmar_error *error);

void gemmar_transport_library_close(struct gemmar_transport_library *library);

#endif
