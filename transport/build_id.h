// SPDX-License-Identifier: Apache-2.0
// Which build this is: both libraries and all ranks must be of the same one.
#ifndef GEMMAR_TRANSPORT_BUILD_ID_H
#define GEMMAR_TRANSPORT_BUILD_ID_H

/* Version and commit, "0.1.0+0123456789ab". */
extern const char gemmar_build_id[];

#endif
