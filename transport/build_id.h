// SPDX-License-Identifier: Apache-2.0
// Which build this is: both libraries and all ranks must be of the same one.
#ifndef GEMMAR_TRANSPORT_BUILD_ID_H
#define GEMMAR_TRANSPORT_BUILD_ID_H

/* Set by the build to version and commit. */
#ifndef GEMMAR_BUILD_ID
#define GEMMAR_BUILD_ID "gemmar 0.1.0"
#endif

#endif
